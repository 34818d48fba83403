//! Certificates for servers and clients, signed by an authority of their own.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rcgen::{BasicConstraints, Certificate, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};

use crate::scratch;

pub(crate) const NOTHING_FAILS: &str = "certificates of known names and new keys";

/// A key that nobody uses, in the forms in which keys are kept.
#[derive(Clone, Copy, Debug)]
pub struct SampleKey {
    /// As PKCS#8, in PEM.
    pub pkcs8: &'static str,
    /// In the form of its own kind, in PEM: SEC1 or PKCS#1.
    pub of_its_kind: &'static str,
}

/// On the curve P-256.
pub const EC_KEY: SampleKey =
    SampleKey { pkcs8: include_str!("keys/ec-pkcs8.pem"), of_its_kind: include_str!("keys/ec-sec1.pem") };
/// Of 2048 bits.
pub const RSA_KEY: SampleKey =
    SampleKey { pkcs8: include_str!("keys/rsa-pkcs8.pem"), of_its_kind: include_str!("keys/rsa-pkcs1.pem") };

/// An authority, and a certificate that it signed for a server and one for clients. Dropping it removes its files.
#[derive(Debug)]
pub struct Certificates {
    dir: PathBuf,
    issuer: Issuer<'static, KeyPair>,
}

impl Certificates {
    /// Makes them and writes their files. The server's holds these names and addresses, and is not valid any more if it is
    /// to be expired.
    ///
    /// # Panics
    /// When they cannot be written.
    #[must_use]
    pub fn new(names: &[String], is_expired: bool) -> Self {
        let (ca, issuer) = make_authority();
        let certificates = Self { dir: scratch::new_dir(), issuer };
        certificates.write("ca.pem", &ca.pem());
        let new_key = || KeyPair::generate().expect(NOTHING_FAILS);
        let (key, client) = (new_key(), params(&[], "grifo test client"));
        certificates
            .write("client.pem", &certificates.sign(&key, client, &[ExtendedKeyUsagePurpose::ClientAuth]).pem());
        certificates.write("client.key", &key.serialize_pem());

        let (key, mut server) = (new_key(), params(names, "grifo test server"));
        if is_expired {
            server.not_before = rcgen::date_time_ymd(2000, 1, 1);
            server.not_after = rcgen::date_time_ymd(2001, 1, 1);
        }
        // The nodes of a cluster are clients of each other.
        let both = [ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        certificates.write("server.pem", &certificates.sign(&key, server, &both).pem());
        certificates.write("server.key", &key.serialize_pem());
        certificates
    }

    /// A certificate for clients that belongs to a key of the caller's, in PEM.
    ///
    /// # Panics
    /// When the key is of a kind that is not known.
    #[must_use]
    pub fn client_file_for(&self, key: &SampleKey) -> PathBuf {
        let key = KeyPair::from_pem(key.pkcs8).expect("a key in PKCS#8");
        let certificate = self.sign(&key, params(&[], "grifo test client"), &[ExtendedKeyUsagePurpose::ClientAuth]);
        self.write("client-of-sample.pem", &certificate.pem())
    }

    /// A file of these contents, beside the others.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.dir.join(name);
        fs::write(&path, text).expect("a file in a folder of its own");
        path
    }

    /// The certificate of the authority, in PEM.
    #[must_use]
    pub fn ca_file(&self) -> PathBuf {
        self.dir.join("ca.pem")
    }

    /// A certificate for a server, in PEM.
    #[must_use]
    pub fn server_cert_file(&self) -> PathBuf {
        self.dir.join("server.pem")
    }

    /// The key of that, in PEM.
    #[must_use]
    pub fn server_key_file(&self) -> PathBuf {
        self.dir.join("server.key")
    }

    /// A certificate for clients, in PEM.
    #[must_use]
    pub fn client_cert_file(&self) -> PathBuf {
        self.dir.join("client.pem")
    }

    /// The key of that, in PEM.
    #[must_use]
    pub fn client_key_file(&self) -> PathBuf {
        self.dir.join("client.key")
    }

    /// The folder of all files.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    fn sign(&self, key: &KeyPair, mut params: CertificateParams, purposes: &[ExtendedKeyUsagePurpose]) -> Certificate {
        params.extended_key_usages = purposes.to_vec();
        params.signed_by(key, &self.issuer).expect(NOTHING_FAILS)
    }
}

impl Drop for Certificates {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// Each has its own name: two of the same name with different keys look like a broken signature, not like strangers.
fn make_authority() -> (Certificate, Issuer<'static, KeyPair>) {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let mut authority = params(&[], &format!("grifo test authority {number}"));
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
