//! TLS in front of a server that has none.
//!
//! It runs on a thread and a runtime of its own, so a test may block or pause its clock without touching it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

use crate::certificates::{Certificates, NOTHING_FAILS};
use crate::ports::free_port;

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

/// A running front; dropping it closes its connections, ends its thread and, if nobody else uses them, removes its files.
#[derive(Debug)]
pub struct TlsFront {
    port: u16,
    upstream: SocketAddr,
    certificates: Arc<Certificates>,
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
        let certificates = Arc::new(Certificates::new(&options.names, options.is_expired));
        Self::start_showing(upstream, certificates, options.needs_client_certificate)
    }

    /// Like [`TlsFront::start`], with certificates that others use too.
    ///
    /// # Panics
    /// When it cannot listen.
    #[must_use]
    pub fn start_showing(
        upstream: SocketAddr,
        certificates: Arc<Certificates>,
        needs_client_certificate: bool,
    ) -> Self {
        let mut front = Self { port: free_port(), upstream, certificates, end: None, thread: None };
        front.begin(needs_client_certificate);
        front
    }

    /// Closes all connections, and goes on at the same port with other certificates.
    ///
    /// # Panics
    /// When it cannot listen.
    pub fn show(&mut self, certificates: &Arc<Certificates>, needs_client_certificate: bool) {
        self.end();
        self.certificates = Arc::clone(certificates);
        self.begin(needs_client_certificate);
    }

    fn begin(&mut self, needs_client_certificate: bool) {
        let (port, upstream) = (self.port, self.upstream);
        let acceptor = TlsAcceptor::from(Arc::new(server_config(&self.certificates, needs_client_certificate)));
        let (end, is_ended) = watch::channel(());
        let (ready, is_ready) = channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.expect("a runtime for the front");
            runtime.block_on(serve(port, upstream, acceptor, is_ended, ready));
        });
        (self.end, self.thread) = (Some(end), Some(thread));
        is_ready.recv().expect("the front listens");
    }

    fn end(&mut self) {
        self.end = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
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

    /// Its certificates and those of its authority.
    #[must_use]
    pub fn certificates(&self) -> &Arc<Certificates> {
        &self.certificates
    }

    /// The certificate of the authority that signed the others, as PEM.
    #[must_use]
    pub fn ca_file(&self) -> PathBuf {
        self.certificates.ca_file()
    }

    /// A certificate for clients, as PEM.
    #[must_use]
    pub fn client_cert_file(&self) -> PathBuf {
        self.certificates.client_cert_file()
    }

    /// The key of the certificate for clients, as PEM.
    #[must_use]
    pub fn client_key_file(&self) -> PathBuf {
        self.certificates.client_key_file()
    }
}

impl Drop for TlsFront {
    fn drop(&mut self) {
        self.end();
    }
}

fn server_config(certificates: &Certificates, needs_client_certificate: bool) -> ServerConfig {
    let read = |path| CertificateDer::from_pem_file(path).expect(NOTHING_FAILS);
    let key = PrivateKeyDer::from_pem_file(certificates.server_key_file()).expect(NOTHING_FAILS);
    let provider = Arc::new(default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
    let builder = builder.with_safe_default_protocol_versions().expect(NOTHING_FAILS);
    let builder = if needs_client_certificate {
        let mut roots = RootCertStore::empty();
        roots.add(read(certificates.ca_file())).expect(NOTHING_FAILS);
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
        builder.with_client_cert_verifier(verifier.expect(NOTHING_FAILS))
    } else {
        builder.with_no_client_auth()
    };
    builder.with_single_cert(vec![read(certificates.server_cert_file())], key).expect(NOTHING_FAILS)
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
