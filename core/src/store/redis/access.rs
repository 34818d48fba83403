//! How the servers of a store are reached: the same for all of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::address::Address;
use super::address_map::AddressMap;
use super::credentials::Login;
use super::session::Session;
use super::tls::Tls;
use crate::credentials::CredentialsProvider;
use crate::error::{Error, ErrorKind};

/// What all nodes of a store share.
#[derive(Debug)]
pub(crate) struct Access {
    pub(super) connect_timeout: Duration,
    tls: Option<Tls>,
    /// Where credentials come from, if not from the URL.
    login: Option<Arc<Login>>,
    /// Where nodes are that other servers name.
    pub(super) address_map: AddressMap,
    /// How often a script had to be sent whole, since a server had forgotten it.
    reloads: AtomicU64,
}

impl Access {
    pub(crate) fn new(connect_timeout: Duration) -> Self {
        Self { connect_timeout, tls: None, login: None, address_map: AddressMap::default(), reloads: AtomicU64::new(0) }
    }

    pub(crate) fn with_tls(mut self, tls: Option<Tls>) -> Self {
        self.tls = tls;
        self
    }

    /// The TLS that a server is spoken to with, if its address asks for that: never without it then.
    pub(super) fn tls_of(&self, address: &Address) -> Result<Option<&Tls>, Error> {
        match &self.tls {
            _ if !address.has_tls() => Ok(None),
            Some(tls) => Ok(Some(tls)),
            None => {
                Err(Error::new(ErrorKind::Internal, "the address asks for TLS and there is none; please report this"))
            }
        }
    }

    /// With credentials that are asked for.
    pub(crate) fn with_provider(mut self, provider: CredentialsProvider) -> Self {
        self.login = Some(Arc::new(Login::new(provider, self.connect_timeout)));
        self
    }

    /// With other addresses for nodes that servers name.
    pub(crate) fn with_address_map(mut self, address_map: AddressMap) -> Self {
        self.address_map = address_map;
        self
    }

    /// The login of a node that is to be connected to.
    pub(super) fn session(&self) -> Option<Arc<Session>> {
        self.login.as_ref().map(|login| Arc::new(Session::new(Arc::clone(login))))
    }

    pub(super) fn count_reload(&self) {
        self.reloads.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn reloads(&self) -> u64 {
        self.reloads.load(Ordering::Relaxed)
    }
}
