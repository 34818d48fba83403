//! What a client is told about TLS.

use std::path::PathBuf;

use super::Tls;
use crate::error::{Error, ErrorKind};

/// What a client is told about TLS, and has not yet looked at. Holds names of files and none of their secrets.
#[derive(Debug, Clone, Default)]
pub(crate) struct TlsOptions {
    pub(crate) ca_file: Option<PathBuf>,
    pub(crate) certificate: Option<PathBuf>,
    pub(crate) key: Option<PathBuf>,
    pub(crate) server_name: Option<String>,
    pub(crate) insecure: bool,
}

impl TlsOptions {
    /// The TLS of a store, if its URL asks for that.
    /// # Errors
    /// [`ErrorKind::InvalidOptions`] for options that cannot be, and for any where the URL is one without TLS: whoever sets
    /// them believes the connection to be encrypted.
    pub(crate) fn resolve(&self, url_has_tls: bool) -> Result<Option<Tls>, Error> {
        if url_has_tls {
            return Tls::new(self).map(Some);
        }
        match self.first_set() {
            None => Ok(None),
            Some(name) => Err(invalid(format!(
                "{name} is set, but the URL is one without TLS; write it as rediss:// or rediss+cluster://"
            ))),
        }
    }

    fn first_set(&self) -> Option<&'static str> {
        let options = [
            ("tls_ca_file", self.ca_file.is_some()),
            ("tls_certificate", self.certificate.is_some()),
            ("tls_key", self.key.is_some()),
            ("tls_server_name", self.server_name.is_some()),
            ("tls_insecure", self.insecure),
        ];
        options.into_iter().find_map(|(name, is_set)| is_set.then_some(name))
    }
}

pub(super) fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOptions, message)
}
