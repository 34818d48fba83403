//! What the server's errors mean, whichever version says it, also when it is wrapped in the error of a script.

use redis::RedisError;

use crate::error::{Error, ErrorKind};

/// Why a request brought no answer.
#[derive(Debug)]
pub(super) enum Failure {
    /// The script is not in the server's cache.
    NoScript(Error),
    /// The server is older than the read-only forms of EVAL.
    NoReadOnlyForm(Error),
    /// The server is loading its data, and will serve soon.
    Loading(Error),
    /// The server is a replica now.
    ReadOnly(Error),
    /// The request surely did not leave.
    Unsent(Error),
    /// Anything else: it may have run, or would fail again.
    Final(Error),
}

impl Failure {
    pub(super) fn into_error(self) -> Error {
        match self {
            Self::NoScript(error)
            | Self::NoReadOnlyForm(error)
            | Self::Loading(error)
            | Self::ReadOnly(error)
            | Self::Unsent(error)
            | Self::Final(error) => error,
        }
    }

    pub(super) fn of(error: &RedisError) -> Self {
        let text = format!("{} {}", error.code().unwrap_or_default(), error.detail().unwrap_or_default());
        let found = SERVER_ERRORS.iter().find(|(words, ..)| text.contains(words));
        if let Some((_, kind, what)) = found {
            let error = Error::new(*kind, format!("{what} (the server said: {})", shorten(&text)));
            return match *kind {
                ErrorKind::Script if text.contains("NOSCRIPT") => Self::NoScript(error),
                ErrorKind::Script if text.contains("unknown command") && text.contains("_RO") => {
                    Self::NoReadOnlyForm(error)
                }
                ErrorKind::Unavailable if text.contains("LOADING") => Self::Loading(error),
                ErrorKind::Unavailable if text.contains("READONLY") => Self::ReadOnly(error),
                _ => Self::Final(error),
            };
        }
        Self::Final(transport_error(error, &text))
    }
}

/// Words that tell errors apart, the kind each one is, and what to do. The first that fits counts.
const SERVER_ERRORS: [(&str, ErrorKind, &str); 24] = [
    ("NOSCRIPT", ErrorKind::Script, "the server has forgotten the script"),
    (
        "unknown command",
        ErrorKind::Script,
        "the server lacks a command; Redis 6.2 or Valkey 7.2 is the oldest that serves",
    ),
    ("LOADING", ErrorKind::Unavailable, "the server is loading its data"),
    ("BUSY ", ErrorKind::Unavailable, "the server is busy with somebody's script; SCRIPT KILL ends it"),
    ("READONLY", ErrorKind::Unavailable, "the server is a replica; address the master"),
    ("MASTERDOWN", ErrorKind::Unavailable, "the server has lost its master"),
    ("MISCONF", ErrorKind::Unavailable, "the server refuses writes since it cannot save to disk"),
    ("OOM ", ErrorKind::Unavailable, "the server is out of memory; raise maxmemory or let it evict"),
    ("NOREPLICAS", ErrorKind::Unavailable, "the server refuses writes for want of replicas"),
    ("max number of clients", ErrorKind::Unavailable, "the server has too many clients; raise maxclients"),
    ("NOAUTH", ErrorKind::Auth, "the server wants credentials; put them into the URL"),
    ("WRONGPASS", ErrorKind::Auth, "the server refused user or password"),
    ("invalid password", ErrorKind::Auth, "the server refused the password"),
    ("without any password configured", ErrorKind::Auth, "the server has no password; take it out of the URL"),
    ("NOPERM", ErrorKind::Permission, "the server's user lacks a right; `grifo ping` names it"),
    ("no permissions to run", ErrorKind::Permission, "the server's user lacks a right; `grifo ping` names it"),
    ("ACL failure", ErrorKind::Permission, "the server's user lacks a right; `grifo ping` names it"),
    ("can't run this command", ErrorKind::Permission, "the server's user lacks a right; `grifo ping` names it"),
    (
        "can't access at least one of the keys",
        ErrorKind::Permission,
        "the server's user may not use keys of this prefix",
    ),
    ("MOVED", ErrorKind::Cluster, "the server is part of a cluster; address it as redis+cluster://"),
    ("ASK ", ErrorKind::Cluster, "the server is part of a cluster; address it as redis+cluster://"),
    ("CLUSTERDOWN", ErrorKind::Cluster, "the cluster is down"),
    ("CROSSSLOT", ErrorKind::Cluster, "the server is part of a cluster; address it as redis+cluster://"),
    ("ERR ", ErrorKind::Script, "the server could not run the script"),
];

/// An error that is not the server's word.
fn transport_error(error: &RedisError, text: &str) -> Error {
    if error.is_timeout() {
        return Error::new(ErrorKind::Timeout, "the server did not answer in time");
    }
    match error.kind() {
        redis::ErrorKind::Parse | redis::ErrorKind::UnexpectedReturnType => Error::new(
            ErrorKind::Protocol,
            "the server answered something that is not its protocol; is it Redis or Valkey?",
        ),
        redis::ErrorKind::AuthenticationFailed => Error::new(ErrorKind::Auth, "the server refused user or password"),
        redis::ErrorKind::Io | redis::ErrorKind::Client => {
            Error::new(ErrorKind::Connection, format!("the connection failed: {}", error.category()))
        }
        _ => Error::new(ErrorKind::Script, format!("the server answered: {}", shorten(text))),
    }
}

/// Text from the server, fit for one line of a log.
fn shorten(text: &str) -> String {
    text.trim().chars().take(120).map(|c| if c.is_control() { ' ' } else { c }).collect()
}
