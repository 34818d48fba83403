//! Whom a client trusts and what it shows of itself, and where that is read.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::sign::{CertifiedKey, SingleCertAndKey};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tokio_rustls::{TlsConnector, rustls};

use super::files;
use super::insecure::AnyCertificate;
use super::kept::Kept;
use super::options::TlsOptions;
use crate::error::{Error, ErrorKind};

/// Reading what the system trusts can take a good part of a second, so it is not read more often than that.
const SYSTEM_PAUSE: Duration = Duration::from_secs(60);

pub(super) struct Sources {
    roots: Roots,
    identity: Option<Kept<Arc<CertifiedKey>>>,
}

enum Roots {
    /// Everybody is trusted.
    All,
    File(Kept<RootCertStore>),
    /// When the system's were read, and what came of it.
    System(Instant, Result<Kept<RootCertStore>, Error>),
}

impl Sources {
    /// Reads the files that options name. What the system trusts is read when it is first renewed.
    /// # Errors
    /// [`ErrorKind::InvalidOptions`] for a file that cannot be read or does not hold what it should.
    pub(super) fn new(options: &TlsOptions) -> Result<Self, Error> {
        let identity = identity(options)?;
        let file = options.ca_file.clone().map(|path| {
            let files = vec![path.clone()];
            Kept::new("tls_ca_file", files, move || files::roots(&path), have_same_roots)
        });
        let roots = match file.transpose()? {
            _ if options.insecure => Roots::All,
            Some(file) => Roots::File(file),
            None => Roots::System(Instant::now(), Err(unread())),
        };
        Ok(Self { roots, identity })
    }

    pub(super) const fn shows_certificate(&self) -> bool {
        self.identity.is_some()
    }

    /// Reads anew what may have changed. Whether it has.
    pub(super) fn renew(&mut self, handshake_failed: bool) -> bool {
        let roots = self.roots.renew(handshake_failed, Instant::now());
        let identity = self.identity.as_mut().is_some_and(Kept::renew);
        roots || identity
    }

    /// What wraps connections, after the last reading.
    /// # Errors
    /// [`ErrorKind::Connection`] while nothing is known that the system trusts.
    pub(super) fn connector(&self) -> Result<TlsConnector, Error> {
        let config = self.config(self.roots.store()?).map_err(|error| {
            Error::new(ErrorKind::Internal, format!("TLS cannot be set up: {error}; please report this"))
        })?;
        Ok(Arc::new(config).into())
    }

    /// Trusts what is signed by one of the roots; without any, everybody.
    fn config(&self, roots: Option<RootCertStore>) -> Result<ClientConfig, rustls::Error> {
        let provider = Arc::new(default_provider());
        let builder =
            ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions()?;
        let builder = match roots {
            Some(roots) => builder.with_root_certificates(roots),
            None => builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyCertificate::new(provider))),
        };
        Ok(match &self.identity {
            Some(identity) => {
                let identity = Arc::clone(identity.value());
                builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(identity)))
            }
            None => builder.with_no_client_auth(),
        })
    }
}

impl Roots {
    fn renew(&mut self, handshake_failed: bool, now: Instant) -> bool {
        match self {
            Self::All => false,
            Self::File(kept) => kept.renew(),
            Self::System(read, Ok(kept)) => {
                let is_due = handshake_failed && now.saturating_duration_since(*read) >= SYSTEM_PAUSE;
                if is_due {
                    *read = now;
                }
                is_due && kept.renew()
            }
            Self::System(read, unread @ Err(_)) => {
                (*read, *unread) = (now, system());
                true
            }
        }
    }

    fn store(&self) -> Result<Option<RootCertStore>, Error> {
        match self {
            Self::All => Ok(None),
            Self::File(kept) | Self::System(_, Ok(kept)) => Ok(Some(kept.value().clone())),
            Self::System(_, Err(error)) => Err(error.clone()),
        }
    }
}

fn identity(options: &TlsOptions) -> Result<Option<Kept<Arc<CertifiedKey>>>, Error> {
    let Some((certificate, key)) = files::of_identity(options)? else { return Ok(None) };
    let files = vec![certificate.clone(), key.clone()];
    let read = move || files::identity(&certificate, &key, &default_provider()).map(Arc::new);
    // Another key is that of another certificate.
    Kept::new("tls_certificate with tls_key", files, read, |one, other| one.cert == other.cert).map(Some)
}

fn system() -> Result<Kept<RootCertStore>, Error> {
    Kept::new("what the system trusts", Vec::new(), files::system_roots, have_same_roots)
}

fn have_same_roots(one: &RootCertStore, other: &RootCertStore) -> bool {
    one.roots == other.roots
}

fn unread() -> Error {
    Error::new(ErrorKind::Connection, "the attempt to connect was ended together with its runtime")
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn what_the_system_trusts_is_read_again_after_a_failure_and_a_pause() {
        let readings = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&readings);
        let read = move || {
            count.fetch_add(1, Ordering::Relaxed);
            Ok(RootCertStore::empty())
        };
        let start = Instant::now();
        let kept = Kept::new("roots", Vec::new(), read, have_same_roots).unwrap();
        let mut roots = Roots::System(start, Ok(kept));
        for (handshake_failed, seconds, wanted) in
            [(true, 0, 1), (true, 59, 1), (false, 100, 1), (true, 100, 2), (true, 159, 2), (true, 160, 3)]
        {
            assert!(!roots.renew(handshake_failed, start + Duration::from_secs(seconds)));
            assert_eq!(readings.load(Ordering::Relaxed), wanted, "{seconds} s");
        }
    }
}
