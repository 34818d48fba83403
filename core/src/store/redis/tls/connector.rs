//! Whom a client trusts, what it shows of itself, and how it wraps a connection.

use std::fmt;
use std::sync::{Arc, OnceLock};

use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::CryptoProvider;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::sign::{CertifiedKey, SingleCertAndKey};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tokio_rustls::{TlsConnector, rustls};

use super::failure::{Alarm, Trust};
use super::files;
use super::insecure::AnyCertificate;
use super::options::{TlsOptions, invalid};
use super::stream::Watched;
use crate::error::{Error, ErrorKind};
use crate::store::redis::address::Address;

/// The TLS of one client, the same for all servers of its store.
///
/// What its options name is read when it is made. The certificates that the system trusts are read at the first connection:
/// that takes milliseconds, on some systems a good part of a second, and a client is made without waiting for anything.
pub(crate) struct Tls {
    trust: Trust,
    server_name: Option<ServerName<'static>>,
    identity: Option<Arc<CertifiedKey>>,
    connector: OnceLock<TlsConnector>,
}

impl Tls {
    /// # Errors
    /// [`ErrorKind::InvalidOptions`] for a file that cannot be read or does not hold what it should, and for a name that
    /// cannot be.
    pub(super) fn new(options: &TlsOptions) -> Result<Self, Error> {
        let server_name = options.server_name.as_deref().map(server_name).transpose()?;
        let identity = files::identity(options, &default_provider())?.map(Arc::new);
        let trust = Trust {
            has_ca_file: options.ca_file.is_some(),
            shows_certificate: identity.is_some(),
            has_server_name: server_name.is_some(),
        };
        let tls = Self { trust, server_name, identity, connector: OnceLock::new() };
        let roots = options.ca_file.as_deref().map(files::roots).transpose()?;
        if options.insecure {
            tracing::warn!("tls_insecure is set: any server is believed to be the store, and given its password");
            let _ = tls.connector.set(tls.make_connector(None)?);
        } else if let Some(roots) = roots {
            let _ = tls.connector.set(tls.make_connector(Some(roots))?);
        }
        Ok(tls)
    }

    /// Wraps a connection that was just made. What the alarm hears later on explains why the server cut it: in TLS 1.3 it
    /// looks at the client's certificate when the client believes that all is well.
    /// # Errors
    /// [`ErrorKind::Connection`], and what to do about it.
    pub(in crate::store::redis) async fn handshake(
        &self,
        stream: TcpStream,
        host: &str,
        address: &Address,
    ) -> Result<(Watched<TlsStream<TcpStream>>, Alarm), Error> {
        let alarm = Alarm::new(address, self.trust);
        let name = match &self.server_name {
            Some(name) => name.clone(),
            None => ServerName::try_from(host.to_owned()).map_err(|_| {
                alarm.error("its host is no name that a certificate could hold; give one as tls_server_name")
            })?,
        };
        let connector = self.connector().await?;
        match connector.connect(name, stream).await {
            Ok(stream) => Ok((Watched::new(stream, alarm.clone()), alarm)),
            Err(error) => Err(alarm.failed(&error)),
        }
    }

    async fn connector(&self) -> Result<TlsConnector, Error> {
        if let Some(connector) = self.connector.get() {
            return Ok(connector.clone());
        }
        // Beside the runtime, which it would hold up; and twice rather than waiting for another, who may never be polled again.
        let roots = tokio::task::spawn_blocking(files::system_roots).await;
        let gone = |_| Error::new(ErrorKind::Connection, "the attempt to connect was ended together with its runtime");
        let connector = self.make_connector(Some(roots.map_err(gone)??))?;
        Ok(self.connector.get_or_init(|| connector).clone())
    }

    /// Trusts what is signed by one of the roots; without any, everybody.
    fn make_connector(&self, roots: Option<RootCertStore>) -> Result<TlsConnector, Error> {
        let provider = Arc::new(default_provider());
        let config = self.configure(roots, provider).map_err(|error| {
            Error::new(ErrorKind::Internal, format!("TLS cannot be set up: {error}; please report this"))
        })?;
        Ok(Arc::new(config).into())
    }

    fn configure(
        &self,
        roots: Option<RootCertStore>,
        provider: Arc<CryptoProvider>,
    ) -> Result<ClientConfig, rustls::Error> {
        let builder =
            ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions()?;
        let builder = match roots {
            Some(roots) => builder.with_root_certificates(roots),
            None => builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyCertificate::new(provider))),
        };
        Ok(match &self.identity {
            Some(identity) => builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(Arc::clone(identity)))),
            None => builder.with_no_client_auth(),
        })
    }
}

fn server_name(text: &str) -> Result<ServerName<'static>, Error> {
    ServerName::try_from(text.to_owned())
        .map_err(|_| invalid("tls_server_name is neither a DNS name nor an IP address"))
}

/// Without the key.
impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("trust", &self.trust)
            .field("server_name", &self.server_name)
            .finish_non_exhaustive()
    }
}
