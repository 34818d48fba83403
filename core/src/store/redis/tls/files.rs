//! Certificates and keys, as files hold them.

use std::path::{Path, PathBuf};

use tokio_rustls::rustls::crypto::CryptoProvider;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{self, RootCertStore};

use super::options::{TlsOptions, invalid};
use crate::error::{Error, ErrorKind};

/// Whom the system trusts.
/// # Errors
/// [`ErrorKind::Connection`] if that is nobody.
pub(super) fn system_roots() -> Result<RootCertStore, Error> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    // Systems hold certificates of a kind that nobody uses any more.
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let why = found.errors.first().map_or_else(String::new, |error| format!(" ({error})"));
        return Err(Error::new(
            ErrorKind::Connection,
            format!(
                "no certificate that the system trusts was found{why}; install ca-certificates or give tls_ca_file"
            ),
        ));
    }
    Ok(roots)
}

/// The authorities in the file of `tls_ca_file`.
pub(super) fn roots(path: &Path) -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    let (usable, _) = roots.add_parsable_certificates(certificates("tls_ca_file", path)?);
    if usable == 0 {
        return Err(invalid(format!("tls_ca_file: {} holds no certificate that can be read", path.display())));
    }
    Ok(roots)
}

/// The files of the certificate and of its key, if the client is to show one.
pub(super) fn of_identity(options: &TlsOptions) -> Result<Option<(PathBuf, PathBuf)>, Error> {
    match (&options.certificate, &options.key) {
        (None, None) => Ok(None),
        (Some(certificate), Some(key)) => Ok(Some((certificate.clone(), key.clone()))),
        (Some(_), None) => Err(invalid("tls_certificate needs tls_key, the file with its private key")),
        (None, Some(_)) => Err(invalid("tls_key needs tls_certificate, the file with its certificate")),
    }
}

/// What the client shows to a server that wants to know who it is.
pub(super) fn identity(certificate: &Path, key: &Path, provider: &CryptoProvider) -> Result<CertifiedKey, Error> {
    let chain = certificates("tls_certificate", certificate)?;
    let private = private_key(key)?;
    CertifiedKey::from_der(chain, private, provider).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => invalid(format!(
            "tls_key: the key in {} is not that of the first certificate in {}",
            key.display(),
            certificate.display()
        )),
        rustls::Error::InvalidCertificate(_) => {
            invalid(format!("tls_certificate: {} holds a certificate that cannot be read", certificate.display()))
        }
        _ => invalid(format!(
            "tls_key: the key in {} cannot be used; RSA of 2048 bits or more, ECDSA on P-256 or P-384 and Ed25519 can",
            key.display()
        )),
    })
}

fn certificates(option: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let read = || CertificateDer::pem_file_iter(path)?.collect::<Result<Vec<_>, _>>();
    let found = read().map_err(|error| unreadable(option, path, &error, "certificate"))?;
    if found.is_empty() {
        return Err(unreadable(option, path, &pem::Error::NoItemsFound, "certificate"));
    }
    Ok(found)
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, Error> {
    PrivateKeyDer::from_pem_file(path)
        .map_err(|error| unreadable("tls_key", path, &error, "private key without a passphrase"))
}

/// The errors of the parser quote the file, which may be the one of the key.
fn unreadable(option: &str, path: &Path, error: &pem::Error, wanted: &str) -> Error {
    let path = path.display();
    invalid(match error {
        pem::Error::Io(error) => format!("{option}: {path} cannot be read: {error}"),
        pem::Error::NoItemsFound => format!("{option}: {path} holds no {wanted} in the form of PEM"),
        _ => format!("{option}: {path} is damaged: it is not PEM from beginning to end"),
    })
}
