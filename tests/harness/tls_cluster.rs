//! A cluster of three masters that is spoken to with TLS.

use std::path::PathBuf;
use std::sync::Arc;

use redis::Value;

use crate::certificates::Certificates;
use crate::cluster::Cluster;
use crate::cluster_options::{ClusterOptions, Endpoint};
use crate::ports::free_port;
use crate::server::Server;
use crate::server_binary::ServerKind;
use crate::tls_front::TlsFront;
use crate::wait;

const MASTERS: usize = 3;

/// A running cluster; dropping it ends every node.
#[derive(Debug)]
pub struct TlsCluster {
    _fronts: Vec<TlsFront>,
    cluster: Option<Cluster>,
    /// Those that speak TLS themselves.
    nodes: Vec<Server>,
    ports: Vec<u16>,
    certificates: Arc<Certificates>,
}

impl TlsCluster {
    /// Starts a cluster without TLS, with a front before each node. The nodes announce the ports of the fronts, and their
    /// IP address or `localhost`; the certificate is for these names.
    ///
    /// # Panics
    /// When that takes too long; the message holds the logs.
    #[must_use]
    pub fn behind_fronts(kind: ServerKind, endpoint: Endpoint, names: &[&str]) -> Self {
        let cluster = Cluster::start_with(ClusterOptions { endpoint, ..ClusterOptions::new(kind, MASTERS, 0) });
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let certificates = Arc::new(Certificates::new(&names, false));
        let front = |node: &Server| TlsFront::start_showing(node.addr(), Arc::clone(&certificates), false);
        let fronts: Vec<TlsFront> = cluster.nodes().iter().map(front).collect();
        let ports: Vec<u16> = fronts.iter().map(TlsFront::port).collect();
        for (node, port) in cluster.nodes().iter().zip(&ports) {
            // The nodes still meet each other at the port that belongs to their own.
            let bus = node.port() + 10_000;
            for (name, value) in [("cluster-announce-bus-port", bus), ("cluster-announce-port", *port)] {
                node.command::<(), _>(&["CONFIG", "SET", name, &value.to_string()]);
            }
        }
        let announced = || cluster.nodes().iter().try_for_each(|node| check_ports(node, &ports));
        wait::until("every node announces its front", || cluster.logs(), announced);
        Self { _fronts: fronts, cluster: Some(cluster), nodes: Vec::new(), ports, certificates }
    }

    /// Starts nodes of Redis 7.0 that speak TLS themselves, also among each other; clients must show a certificate.
    ///
    /// # Errors
    /// Why this machine cannot do that.
    ///
    /// # Panics
    /// When it takes too long; the message holds the logs.
    pub fn of_redis() -> Result<Self, String> {
        let names = ["localhost", "127.0.0.1"].map(str::to_owned);
        let certificates = Arc::new(Certificates::new(&names, false));
        drop(start_redis(&certificates, free_port(), &[])?);
        let ports: Vec<u16> = (0..MASTERS).map(|_| free_port()).collect();
        let options = ["--cluster-enabled", "yes", "--cluster-config-file", "nodes", "--tls-cluster", "yes"];
        let start = |index: usize| start_redis(&certificates, ports[index], &options).expect("as the one before");
        let nodes = wait::start_all(MASTERS, start);
        for (index, node) in nodes.iter().enumerate() {
            let bound = |index: usize| (index * 16_384 / MASTERS).to_string();
            let last = (bound(index + 1).parse::<u16>().expect("a number") - 1).to_string();
            node.command::<(), _>(&["CLUSTER", "SET-CONFIG-EPOCH", &(index + 1).to_string()]);
            node.command::<(), _>(&["CLUSTER", "ADDSLOTSRANGE", &bound(index), &last]);
            for port in &ports {
                node.command::<(), _>(&["CLUSTER", "MEET", "127.0.0.1", &port.to_string()]);
            }
        }
        wait::until("a cluster with TLS", || wait::logs(&nodes), || nodes.iter().try_for_each(check_serves));
        Ok(Self { _fronts: Vec::new(), cluster: None, nodes, ports, certificates })
    }

    /// `rediss+cluster://HOST:PORT,HOST:PORT…`
    #[must_use]
    pub fn url(&self, host: &str) -> String {
        let seeds: Vec<String> = self.ports.iter().map(|port| format!("{host}:{port}")).collect();
        format!("rediss+cluster://{}", seeds.join(","))
    }

    /// The certificates of all nodes.
    #[must_use]
    pub fn certificates(&self) -> &Certificates {
        &self.certificates
    }

    /// The certificate of their authority, in PEM.
    #[must_use]
    pub fn ca_file(&self) -> PathBuf {
        self.certificates.ca_file()
    }

    /// The nodes, to be asked without TLS.
    #[must_use]
    pub fn nodes(&self) -> &[Server] {
        self.cluster.as_ref().map_or(&self.nodes, Cluster::nodes)
    }
}

/// Starts a server of Redis 7.0 that speaks TLS on a port, and wants a certificate of its clients.
///
/// # Errors
/// Why this machine cannot do that.
pub fn start_redis(certificates: &Certificates, port: u16, args: &[&str]) -> Result<Server, String> {
    let text = |path: PathBuf| path.to_string_lossy().into_owned();
    let (ca, cert, key) = (certificates.ca_file(), certificates.server_cert_file(), certificates.server_key_file());
    let (ca, cert, key, port) = (text(ca), text(cert), text(key), port.to_string());
    let tls = ["--tls-port", &port, "--tls-cert-file", &cert, "--tls-key-file", &key, "--tls-ca-cert-file", &ca];
    Server::try_start_with(ServerKind::Redis70, &[&tls, args].concat())
}

fn check_ports(node: &Server, ports: &[u16]) -> Result<(), String> {
    // Of each range the first slot, the last, and the master: its address, its port, and more.
    let ranges: Vec<(u16, u16, Vec<Value>)> = node.command(&["CLUSTER", "SLOTS"]);
    let is_front = |port: &Value| ports.iter().any(|front| *port == Value::Int((*front).into()));
    let are_fronts = ranges.iter().all(|(_, _, master)| master.get(1).is_some_and(is_front));
    if ranges.len() == MASTERS && are_fronts { Ok(()) } else { Err(format!("{ranges:?}")) }
}

fn check_serves(node: &Server) -> Result<(), String> {
    let info: String = node.command(&["CLUSTER", "INFO"]);
    let is_ready = info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:3\r\n");
    if is_ready { Ok(()) } else { Err(info) }
}
