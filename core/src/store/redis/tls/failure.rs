//! What the failures of TLS mean, and what to do about them.

use std::io;
use std::sync::{Arc, OnceLock};

use tokio_rustls::rustls::pki_types::{ServerName, UnixTime};
use tokio_rustls::rustls::{AlertDescription, CertificateError, Error as TlsError};

use crate::error::{Error, ErrorKind};
use crate::store::redis::address::Address;

const SECONDS_OF_A_DAY: u64 = 24 * 60 * 60;
/// The server's certificate may hold any number of names, of any length.
const MOST_NAMES: usize = 5;
const LONGEST_NAME: usize = 80;

/// Which options were given: what is wrong depends on them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Trust {
    pub(super) has_ca_file: bool,
    pub(super) shows_certificate: bool,
    pub(super) has_server_name: bool,
}

/// Knows why a connection failed, if it was for TLS.
#[derive(Debug, Clone)]
pub(in crate::store::redis) struct Alarm {
    address: String,
    trust: Trust,
    heard: Arc<OnceLock<TlsError>>,
}

impl Alarm {
    pub(super) fn new(address: &Address, trust: Trust) -> Self {
        Self { address: address.to_string(), trust, heard: Arc::default() }
    }

    pub(super) fn hear(&self, error: &io::Error) {
        if let Some(error) = tls_error(error) {
            let _ = self.heard.set(error.clone());
        }
    }

    /// The error of a connection that failed after the handshake; that of TLS in its place if there was one.
    pub(in crate::store::redis) fn explain(&self, error: Error) -> Error {
        self.heard.get().map_or(error, |heard| self.error(&self.trust.meaning(heard)))
    }

    /// The error of a handshake that failed.
    pub(super) fn failed(&self, error: &io::Error) -> Error {
        match tls_error(error) {
            Some(error) => self.error(&self.trust.meaning(error)),
            None => self.error(&format!(
                "the server cut the TLS handshake short ({error}); is this its port for TLS, and does it want a client certificate?"
            )),
        }
    }

    pub(super) fn error(&self, what: &str) -> Error {
        Error::new(ErrorKind::Connection, format!("cannot connect to {}: {what}", self.address))
    }
}

fn tls_error(error: &io::Error) -> Option<&TlsError> {
    error.get_ref()?.downcast_ref()
}

impl Trust {
    fn meaning(self, error: &TlsError) -> String {
        match error {
            TlsError::InvalidCertificate(error) => self.meaning_of_certificate(error),
            TlsError::AlertReceived(alert) => self.meaning_of_alert(*alert),
            TlsError::InvalidMessage(_) => {
                "the server does not speak TLS there; give its port for TLS, or write redis:// to go without".to_owned()
            }
            TlsError::PeerIncompatible(why) => {
                format!("the server speaks another TLS than this client, which knows versions 1.2 and 1.3 ({why:?})")
            }
            other => format!("the TLS handshake failed: {}", shorten(&other.to_string(), 2 * LONGEST_NAME)),
        }
    }

    fn meaning_of_certificate(self, error: &CertificateError) -> String {
        match error {
            CertificateError::UnknownIssuer | CertificateError::BadSignature if self.has_ca_file => {
                "the server's certificate is not signed by any authority in tls_ca_file; is that the file of this server?"
                    .to_owned()
            }
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                "the server's certificate is signed by nobody whom this system trusts; give the certificate of its \
                 authority as tls_ca_file"
                    .to_owned()
            }
            CertificateError::NotValidForNameContext { expected, presented } => self.wrong_name(expected, presented),
            CertificateError::NotValidForName => {
                "the server's certificate is for another name; give that as tls_server_name".to_owned()
            }
            CertificateError::ExpiredContext { time, not_after } => {
                format!("the server's certificate expired {}", days(*not_after, *time, "ago"))
            }
            CertificateError::NotValidYetContext { time, not_before } => format!(
                "the server's certificate begins to be valid {}; is the clock of this machine right?",
                days(*time, *not_before, "from now")
            ),
            CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
                "the server's certificate is not one for servers".to_owned()
            }
            other => format!("the server's certificate is refused: {}", shorten(&other.to_string(), 2 * LONGEST_NAME)),
        }
    }

    fn wrong_name(self, expected: &ServerName<'_>, presented: &[String]) -> String {
        let expected = expected.to_str();
        let asked = if self.has_server_name { "tls_server_name" } else { "the address" };
        if presented.is_empty() {
            return format!("the server's certificate holds no name (subjectAltName), so not {expected} either");
        }
        let mut names: Vec<String> = presented.iter().take(MOST_NAMES).map(|name| bare(name)).collect();
        if presented.len() > MOST_NAMES {
            names.push("…".to_owned());
        }
        format!(
            "the server's certificate is for {}, and {asked} says {expected}; address it by a name that is in there, or \
             give one as tls_server_name",
            names.join(", ")
        )
    }

    fn meaning_of_alert(self, alert: AlertDescription) -> String {
        use AlertDescription as Alert;
        match alert {
            Alert::CertificateRequired => self.certificate_wanted(),
            // The older version has no word of its own for a certificate that is missing.
            Alert::HandshakeFailure if !self.shows_certificate => {
                format!("the server refused the TLS handshake; perhaps {}", self.certificate_wanted())
            }
            Alert::BadCertificate
            | Alert::UnsupportedCertificate
            | Alert::CertificateRevoked
            | Alert::CertificateExpired
            | Alert::CertificateUnknown
            | Alert::UnknownCA
            | Alert::AccessDenied
            | Alert::DecryptError
                if self.shows_certificate =>
            {
                format!(
                    "the server refused the certificate of tls_certificate ({alert:?}); is it signed by an authority that \
                     the server trusts, for clients, and still valid?"
                )
            }
            Alert::BadCertificate => self.certificate_wanted(),
            Alert::UnrecognisedName => "the server does not know the name; give one as tls_server_name".to_owned(),
            Alert::ProtocolVersion => {
                "the server speaks another TLS than this client, which knows versions 1.2 and 1.3".to_owned()
            }
            other => format!("the server refused the TLS handshake ({other:?})"),
        }
    }

    fn certificate_wanted(self) -> String {
        if self.shows_certificate {
            return "the server wants another client certificate than that of tls_certificate".to_owned();
        }
        "the server wants a client certificate; give tls_certificate and tls_key".to_owned()
    }
}

/// How long it is from one time to another, in whole days.
fn days(from: UnixTime, to: UnixTime, which: &str) -> String {
    match to.as_secs().saturating_sub(from.as_secs()) / SECONDS_OF_A_DAY {
        0 => format!("less than a day {which}"),
        1 => format!("a day {which}"),
        days => format!("{days} days {which}"),
    }
}

/// A name as a certificate holds it, out of `DnsName("localhost")`.
fn bare(name: &str) -> String {
    let inner = name.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')')).unwrap_or(name);
    shorten(inner.trim_matches('"'), LONGEST_NAME)
}

/// Text from the server, fit for one line of a log.
fn shorten(text: &str, length: usize) -> String {
    text.chars().take(length).map(|c| if c.is_control() { ' ' } else { c }).collect()
}
