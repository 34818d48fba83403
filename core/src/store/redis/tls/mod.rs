//! TLS: what a client is told about it, how a connection is wrapped in it, and what its failures mean.

#[cfg(not(feature = "tls"))]
mod absent;
#[cfg(feature = "tls")]
mod connector;
#[cfg(feature = "tls")]
mod failure;
#[cfg(feature = "tls")]
mod files;
pub(super) mod hint;
#[cfg(feature = "tls")]
mod insecure;
#[cfg(feature = "tls")]
mod kept;
#[cfg(feature = "tls")]
mod material;
mod options;
#[cfg(feature = "tls")]
mod sources;
#[cfg(feature = "tls")]
mod stream;

#[cfg(not(feature = "tls"))]
pub(crate) use self::absent::Tls;
#[cfg(feature = "tls")]
pub(crate) use self::connector::Tls;
pub(crate) use self::options::TlsOptions;
