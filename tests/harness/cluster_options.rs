//! How a cluster is made.

use crate::server::Server;
use crate::server_binary::ServerKind;

/// What the nodes tell clients as their own address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Endpoint {
    /// Their IP address. A cluster of a single node does not know it and gives an empty one.
    #[default]
    Ip,
    /// The name `localhost`; from 7.0 on.
    Hostname,
    /// A name is preferred and none is known: `?`; from 7.0 on.
    MissingHostname,
    /// None: clients are to use the address that they asked; from 7.0 on.
    Unknown,
}

impl Endpoint {
    fn args(self) -> &'static [&'static str] {
        match self {
            Self::Ip => &[],
            Self::Hostname => {
                &["--cluster-announce-hostname", "localhost", "--cluster-preferred-endpoint-type", "hostname"]
            }
            Self::MissingHostname => &["--cluster-preferred-endpoint-type", "hostname"],
            Self::Unknown => &["--cluster-preferred-endpoint-type", "unknown-endpoint"],
        }
    }
}

/// How a cluster is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterOptions {
    /// Which server its nodes are.
    pub kind: ServerKind,
    /// How many masters share the slots.
    pub masters: usize,
    /// How many replicas each of them has.
    pub replicas_per_master: usize,
    /// Whether it refuses everything while a slot has no owner.
    pub full_coverage: bool,
    /// What its nodes tell clients as their address.
    pub endpoint: Endpoint,
    /// Whether it lives on `::1`; the nodes still answer on 127.0.0.1 too.
    pub ipv6: bool,
    /// The password of all nodes.
    pub password: Option<String>,
    /// More options of every node, in the form `["--maxmemory", "1mb"]`.
    pub args: Vec<String>,
}

impl ClusterOptions {
    /// IPv4 addresses, no password, and slots that are served even when others have no owner.
    #[must_use]
    pub fn new(kind: ServerKind, masters: usize, replicas_per_master: usize) -> Self {
        Self {
            kind,
            masters,
            replicas_per_master,
            full_coverage: false,
            endpoint: Endpoint::Ip,
            ipv6: false,
            password: None,
            args: Vec::new(),
        }
    }

    fn node_args(&self) -> Vec<&str> {
        let mut args = vec![
            // Short, so that a dead master is replaced within a few seconds.
            "--cluster-enabled yes --cluster-config-file nodes --cluster-node-timeout 1000",
            "--cluster-replica-validity-factor 0 --repl-diskless-sync-delay 0",
            // Roles change only when a test wants it.
            "--cluster-allow-replica-migration no --cluster-require-full-coverage",
            if self.full_coverage { "yes" } else { "no" },
            // The first address is also the one that some versions connect from.
            if self.ipv6 { "--bind ::1 127.0.0.1" } else { "--bind 127.0.0.1" },
        ];
        args = args.into_iter().flat_map(|group| group.split(' ')).collect();
        if let Some(password) = &self.password {
            args.extend(["--requirepass", password, "--masterauth", password]);
        }
        args.extend(self.endpoint.args());
        args.extend(self.args.iter().map(String::as_str));
        args
    }

    pub(crate) fn start_node(&self) -> Server {
        Server::start_with(self.kind, &self.node_args())
    }
}
