//! How a client wraps a connection.

use std::fmt;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::ServerName;

use super::failure::{Alarm, Trust};
use super::material::Material;
use super::options::{TlsOptions, invalid};
use super::sources::Sources;
use super::stream::Watched;
use crate::error::Error;
use crate::store::redis::address::Address;

/// The TLS of one client, the same for all servers of its store.
///
/// What its options name is read when it is made, and anew for each connection. The certificates that the system trusts are
/// read at the first connection: that takes milliseconds, on some systems a good part of a second, and a client is made
/// without waiting for anything.
pub(crate) struct Tls {
    trust: Trust,
    server_name: Option<ServerName<'static>>,
    material: Arc<Material>,
}

impl Tls {
    /// # Errors
    /// [`InvalidOptions`](crate::ErrorKind::InvalidOptions) for a file that cannot be read or does not hold what it should,
    /// and for a name that cannot be.
    pub(super) fn new(options: &TlsOptions) -> Result<Self, Error> {
        let server_name = options.server_name.as_deref().map(server_name).transpose()?;
        let sources = Sources::new(options)?;
        let trust = Trust {
            has_ca_file: options.ca_file.is_some(),
            shows_certificate: sources.shows_certificate(),
            has_server_name: server_name.is_some(),
        };
        if options.insecure {
            tracing::warn!("tls_insecure is set: any server is believed to be the store, and given its password");
        }
        Ok(Self { trust, server_name, material: Arc::new(Material::new(sources)) })
    }

    /// Wraps a connection that was just made. What the alarm hears later on explains why the server cut it: in TLS 1.3 it
    /// looks at the client's certificate when the client believes that all is well.
    /// # Errors
    /// [`Connection`](crate::ErrorKind::Connection), and what to do about it.
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
        match self.material.connector().await?.connect(name, stream).await {
            Ok(stream) => Ok((Watched::new(stream, alarm.clone()), alarm)),
            Err(error) => {
                self.material.doubt();
                Err(alarm.failed(&error))
            }
        }
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
