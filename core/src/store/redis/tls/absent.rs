//! What stands in for TLS where the crate was built without it.

use std::convert::Infallible;

use tokio::net::TcpStream;

use super::options::{TlsOptions, invalid};
use crate::error::Error;
use crate::store::redis::address::Address;

/// There is none.
#[derive(Debug)]
pub(crate) enum Tls {}

impl Tls {
    /// # Errors
    /// Always.
    pub(super) fn new(_: &TlsOptions) -> Result<Self, Error> {
        Err(invalid("the URL asks for TLS, but grifo was built without its feature `tls`; build it with that"))
    }

    pub(in crate::store::redis) async fn handshake(
        &self,
        _: TcpStream,
        _: &str,
        _: &Address,
    ) -> Result<(TcpStream, Alarm), Error> {
        match *self {}
    }
}

/// Never made.
pub(in crate::store::redis) struct Alarm(Infallible);

impl Alarm {
    pub(in crate::store::redis) fn explain(&self, _: Error) -> Error {
        match self.0 {}
    }
}

#[cfg(test)]
mod tests {
    use crate::{Client, ErrorKind};

    #[test]
    fn a_url_with_tls_is_refused_by_the_name_of_the_feature() {
        for url in ["rediss://localhost", "rediss+cluster://localhost"] {
            let error = Client::open(url).expect_err(url);
            assert_eq!(error.kind(), ErrorKind::InvalidOptions);
            assert!(error.message().contains("`tls`"), "{error}");
        }
    }
}
