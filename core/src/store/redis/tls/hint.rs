//! What may be wrong with TLS where nobody speaks of it.

use crate::error::{Error, ErrorKind};
use crate::store::redis::address::Address;

/// What to think of when connecting takes too long.
pub(in crate::store::redis) const fn of_silence(address: &Address) -> &'static str {
    if address.has_tls() {
        "; a server without TLS leaves the handshake unanswered: is this its port for TLS?"
    } else {
        ""
    }
}

/// Whoever meets a server of TLS without it is cut off, or answered in no protocol that he knows.
pub(in crate::store::redis) fn of_a_cut(error: Error) -> Error {
    match error.kind() {
        kind @ (ErrorKind::Connection | ErrorKind::Protocol) => {
            Error::new(kind, format!("{} (if it speaks TLS, write the URL as rediss://)", error.message()))
        }
        _ => error,
    }
}
