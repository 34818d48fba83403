//! TLS in front of a server that has none, with certificates of its own.
//!
//! It runs on a thread and a runtime of its own, so a test may block or pause its clock without touching it.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use rcgen::{BasicConstraints, Certificate, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

use crate::ports::free_port;
use crate::scratch;

const NOTHING_FAILS: &str = "certificates of known names and new keys";

/// How TLS is spoken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsOptions {
    /// The names and addresses in the server's certificate.
    pub names: Vec<String>,
    /// Whether the server's certificate is no longer valid.
    pub is_expired: bool,
    /// Whether clients must show a certificate of the same authority.
    pub needs_client_certificate: bool,
}

impl Default for TlsOptions {
    /// A valid certificate for `localhost`, `127.0.0.1` and `::1`; clients need none.
    fn default() -> Self {
        let names = ["localhost", "127.0.0.1", "::1"].map(str::to_owned).to_vec();
        Self { names, is_expired: false, needs_client_certificate: false }
    }
}

/// A running front; dropping it closes its connections, ends its thread and removes its files.
#[derive(Debug)]
pub struct TlsFront {
    port: u16,
    dir: PathBuf,
    end: Option<watch::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl TlsFront {
    /// Starts a front that passes on to `upstream`, on a free port of both loopback addresses.
    ///
    /// # Panics
    /// When it cannot listen or write its files.
    #[must_use]
    pub fn start(upstream: SocketAddr) -> Self {
        Self::start_with(upstream, &TlsOptions::default())
    }

    /// Like [`TlsFront::start`], and clients must show [`TlsFront::client_cert_file`].
    ///
    /// # Panics
    /// When it cannot listen or write its files.
    #[must_use]
    pub fn start_mutual(upstream: SocketAddr) -> Self {
        Self::start_with(upstream, &TlsOptions { needs_client_certificate: true, ..TlsOptions::default() })
    }

    /// Like [`TlsFront::start`], with options.
    ///
    /// # Panics
    /// When it cannot listen or write its files.
    #[must_use]
    pub fn start_with(upstream: SocketAddr, options: &TlsOptions) -> Self {
        let (port, dir) = (free_port(), scratch::new_dir());
        let acceptor = TlsAcceptor::from(Arc::new(make_config(&dir, port, options)));
        let (end, is_ended) = watch::channel(());
        let (ready, is_ready) = channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.expect("a runtime for the front");
            runtime.block_on(serve(port, upstream, acceptor, is_ended, ready));
        });
        let front = Self { port, dir, end: Some(end), thread: Some(thread) };
        is_ready.recv().expect("the front listens");
        front
    }

    /// The port it listens on.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The IPv4 address it listens on.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// `rediss://localhost:PORT`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("rediss://localhost:{}", self.port)
    }

    /// The certificate of the authority that signed the others, as PEM.
    #[must_use]
    pub fn ca_file(&self) -> PathBuf {
        self.dir.join("ca.pem")
    }

    /// A certificate for clients, as PEM.
    #[must_use]
    pub fn client_cert_file(&self) -> PathBuf {
        self.dir.join("client.pem")
    }

    /// The key of the certificate for clients, as PEM.
    #[must_use]
    pub fn client_key_file(&self) -> PathBuf {
        self.dir.join("client.key")
    }
}

impl Drop for TlsFront {
    fn drop(&mut self) {
        self.end = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// Makes all certificates, writes those that clients need, and keeps those of the server.
fn make_config(dir: &Path, port: u16, options: &TlsOptions) -> ServerConfig {
    let (ca, issuer) = make_authority(port);
    let write = |name: &str, text: String| fs::write(dir.join(name), text).expect("a file in the front's own folder");
    write("ca.pem", ca.pem());
    let (client, client_key) = sign(&issuer, params(&[], "grifo test client"), ExtendedKeyUsagePurpose::ClientAuth);
    write("client.pem", client.pem());
    write("client.key", client_key.serialize_pem());

    let mut server = params(&options.names, "grifo test server");
    if options.is_expired {
        server.not_before = rcgen::date_time_ymd(2000, 1, 1);
        server.not_after = rcgen::date_time_ymd(2001, 1, 1);
    }
    let (server, server_key) = sign(&issuer, server, ExtendedKeyUsagePurpose::ServerAuth);
    let key = PrivateKeyDer::try_from(server_key.serialize_der()).expect(NOTHING_FAILS);
    server_config(ca.der(), server.der(), key, options.needs_client_certificate)
}

/// Each has its own name: two of the same name with different keys look like a broken signature, not like strangers.
fn make_authority(port: u16) -> (Certificate, Issuer<'static, KeyPair>) {
    let mut authority = params(&[], &format!("grifo test authority {port}"));
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect(NOTHING_FAILS);
    let certificate = authority.self_signed(&key).expect(NOTHING_FAILS);
    (certificate, Issuer::new(authority, key))
}

fn params(names: &[String], common_name: &str) -> CertificateParams {
    let mut params = CertificateParams::new(names).expect(NOTHING_FAILS);
    params.distinguished_name.push(DnType::CommonName, common_name);
    params
}

fn sign(
    issuer: &Issuer<'_, KeyPair>,
    mut params: CertificateParams,
    purpose: ExtendedKeyUsagePurpose,
) -> (Certificate, KeyPair) {
    params.extended_key_usages = vec![purpose];
    let key = KeyPair::generate().expect(NOTHING_FAILS);
    (params.signed_by(&key, issuer).expect(NOTHING_FAILS), key)
}

fn server_config(
    ca: &CertificateDer<'static>,
    certificate: &CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
    needs_client_certificate: bool,
) -> ServerConfig {
    let provider = Arc::new(default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
    let builder = builder.with_safe_default_protocol_versions().expect(NOTHING_FAILS);
    let builder = if needs_client_certificate {
        let mut roots = RootCertStore::empty();
        roots.add(ca.clone()).expect(NOTHING_FAILS);
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
        builder.with_client_cert_verifier(verifier.expect(NOTHING_FAILS))
    } else {
        builder.with_no_client_auth()
    };
    builder.with_single_cert(vec![certificate.clone()], key).expect(NOTHING_FAILS)
}

async fn serve(
    port: u16,
    upstream: SocketAddr,
    acceptor: TlsAcceptor,
    mut is_ended: watch::Receiver<()>,
    ready: Sender<()>,
) {
    let v4 = listen(Ipv4Addr::LOCALHOST.into(), port).await.expect("the front's own port");
    // Not every machine has it; there `localhost` is the other address.
    let v6 = listen(Ipv6Addr::LOCALHOST.into(), port).await;
    let _ = ready.send(());
    let accepting = async {
        tokio::join!(accept_all(Some(v4), upstream, &acceptor), accept_all(v6, upstream, &acceptor));
    };
    // Only an end of the sender counts as a change. The runtime that ends with this closes all connections.
    tokio::select! {
        () = accepting => {}
        _ = is_ended.changed() => {}
    }
}

async fn listen(ip: IpAddr, port: u16) -> Option<TcpListener> {
    TcpListener::bind((ip, port)).await.ok()
}

async fn accept_all(listener: Option<TcpListener>, upstream: SocketAddr, acceptor: &TlsAcceptor) {
    let Some(listener) = listener else { return };
    loop {
        if let Ok((client, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                // A client that gives up in the middle is none of the front's business.
                let _ = connection(client, upstream, acceptor).await;
            });
        }
    }
}

async fn connection(client: TcpStream, upstream: SocketAddr, acceptor: TlsAcceptor) -> std::io::Result<()> {
    client.set_nodelay(true)?;
    let mut client = acceptor.accept(client).await?;
    let mut server = TcpStream::connect(upstream).await?;
    server.set_nodelay(true)?;
    tokio::io::copy_bidirectional(&mut client, &mut server).await.map(|_| ())
}

#[cfg(test)]
#[path = "tls_front_tests.rs"]
mod tests;
