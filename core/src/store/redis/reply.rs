//! What the server's errors mean, whichever version says it, also when it is wrapped in the error of a script.

use redis::{RedisError, Value};

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
    /// The slot has moved to another node of the cluster: host and port, as the server says.
    Moved(Error, String),
    /// This request alone must go to another node.
    Ask(Error, String),
    /// The keys of the slot are on two nodes just now.
    TryAgain(Error),
    /// The cluster does not serve the slot.
    ClusterDown(Error),
    /// The script leaves what it found to the one of every case, and did nothing.
    Undecided(Error),
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
            | Self::Moved(error, _)
            | Self::Ask(error, _)
            | Self::TryAgain(error)
            | Self::ClusterDown(error)
            | Self::Undecided(error)
            | Self::Final(error) => error,
        }
    }

    pub(super) fn of(error: &RedisError) -> Self {
        let (code, detail) = (error.code().unwrap_or_default(), error.detail().unwrap_or_default());
        let Some((word, kind, what)) = by_code(code).or_else(|| by_words(code, detail)) else {
            return Self::Final(unknown_error(error, code, detail));
        };
        // A server that does not know a command repeats its arguments, a password among them.
        let said = detail.split(", with args").next().unwrap_or_default();
        let error = Error::new(kind, format!("{what} (the server said: {})", shorten(&format!("{code} {said}"))));
        let elsewhere = || detail.split_ascii_whitespace().nth(1).unwrap_or_default().to_owned();
        match word {
            "NOSCRIPT" => Self::NoScript(error),
            UNKNOWN_COMMAND if is_about_read_only_form(detail) => Self::NoReadOnlyForm(error),
            "LOADING" => Self::Loading(error),
            "READONLY" => Self::ReadOnly(error),
            "MOVED" => Self::Moved(error, elsewhere()),
            "ASK" => Self::Ask(error, elsewhere()),
            "TRYAGAIN" => Self::TryAgain(error),
            "CLUSTERDOWN" => Self::ClusterDown(error),
            "WRONGTYPE" => Self::Undecided(error),
            _ => Self::Final(error),
        }
    }
}

/// A word that tells an error apart, the kind it is, and what to do.
type Meaning = (&'static str, ErrorKind, &'static str);

const UNKNOWN_COMMAND: &str = "unknown command";
const LACKS_A_RIGHT: &str = "the server's user lacks a right; `grifo ping` names it";
const WANTS_CREDENTIALS: &str = "the server wants credentials; put them into the URL";
const OF_A_CLUSTER: &str = "the server is part of a cluster; address it as redis+cluster://";

/// Errors told by their code, the first word of the reply.
const CODES: [Meaning; 19] = [
    ("NOSCRIPT", ErrorKind::Script, "the server has forgotten the script"),
    ("LOADING", ErrorKind::Unavailable, "the server is loading its data"),
    ("BUSY", ErrorKind::Unavailable, "the server is busy with somebody's script; SCRIPT KILL ends it"),
    ("READONLY", ErrorKind::Unavailable, "the server is a replica; address the master"),
    ("MASTERDOWN", ErrorKind::Unavailable, "the server has lost its master"),
    ("MISCONF", ErrorKind::Unavailable, "the server refuses writes since it cannot save to disk"),
    ("OOM", ErrorKind::Unavailable, "the server is out of memory; raise maxmemory or let it evict"),
    ("NOREPLICAS", ErrorKind::Unavailable, "the server refuses writes for want of replicas"),
    ("NOAUTH", ErrorKind::Auth, WANTS_CREDENTIALS),
    ("WRONGPASS", ErrorKind::Auth, "the server refused user or password"),
    ("NOPERM", ErrorKind::Permission, LACKS_A_RIGHT),
    ("MOVED", ErrorKind::Cluster, OF_A_CLUSTER),
    ("ASK", ErrorKind::Cluster, OF_A_CLUSTER),
    ("CROSSSLOT", ErrorKind::Cluster, OF_A_CLUSTER),
    ("TRYAGAIN", ErrorKind::Cluster, "the slot is just moving to another node"),
    ("CLUSTERDOWN", ErrorKind::Cluster, "the cluster does not serve this slot"),
    (
        "DENIED",
        ErrorKind::Connection,
        "the server serves its own machine alone; give it a password or end protected mode",
    ),
    ("WRONGTYPE", ErrorKind::Script, "the server holds something else under this key"),
    ("EXECABORT", ErrorKind::Script, "the server could not run the script"),
];

/// Errors told by what they say, where the code is a plain ERR. Those of a script quote what went wrong in it.
const WORDS: [Meaning; 11] = [
    (
        UNKNOWN_COMMAND,
        ErrorKind::Script,
        "the server lacks a command; Redis 6.2 or Valkey 7.2 is the oldest that serves",
    ),
    ("max number of clients", ErrorKind::Unavailable, "the server has too many clients; raise maxclients"),
    // What a command that is long enough is answered instead of NOAUTH.
    ("Protocol error: unauthenticated", ErrorKind::Auth, WANTS_CREDENTIALS),
    ("invalid password", ErrorKind::Auth, "the server refused the password"),
    ("without any password configured", ErrorKind::Auth, "the server has no password; take it out of the URL"),
    ("DB index is out of range", ErrorKind::Connection, "the server has no database of this number; see the URL"),
    ("SELECT is not allowed", ErrorKind::Cluster, OF_A_CLUSTER),
    ("cluster support disabled", ErrorKind::Cluster, "the server is no part of a cluster; address it as redis://"),
    ("permissions to run", ErrorKind::Permission, LACKS_A_RIGHT),
    ("ACL failure", ErrorKind::Permission, LACKS_A_RIGHT),
    ("can't ", ErrorKind::Permission, LACKS_A_RIGHT),
];

fn by_code(code: &str) -> Option<Meaning> {
    CODES.into_iter().find(|(word, ..)| *word == code)
}

fn by_words(code: &str, detail: &str) -> Option<Meaning> {
    // What a script met stands behind a dash; nothing else there comes from outside.
    // The server quotes the caller's own words here, which may be any.
    if detail.starts_with(UNKNOWN_COMMAND) {
        return Some(WORDS[0]);
    }
    let in_script = CODES.into_iter().find(|(word, ..)| is_of_a_script(detail) && has_met(word, detail));
    let by_words = || WORDS.into_iter().find(|(words, ..)| detail.contains(words));
    let other = || (code == "ERR").then_some(("ERR", ErrorKind::Script, "the server could not run the script"));
    in_script.or_else(by_words).or_else(other)
}

/// The unknown command stands in quotes, those of the version. What follows are the caller's words.
fn is_about_read_only_form(detail: &str) -> bool {
    detail.split(['`', '\'']).nth(1).is_some_and(|name| name.to_ascii_uppercase().ends_with("_RO"))
}

/// Behind a dash or, what a command itself refuses on Redis 6.2, behind the line of the script.
fn has_met(word: &str, detail: &str) -> bool {
    [format!("-{word} "), format!(": {word} ")].iter().any(|met| detail.contains(met))
}

fn is_of_a_script(detail: &str) -> bool {
    detail.contains("@user_script") || detail.contains("script: ")
}

/// An error that is not the server's word, or a word that nobody knows.
fn unknown_error(error: &RedisError, code: &str, detail: &str) -> Error {
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
        _ => Error::new(ErrorKind::Script, format!("the server answered: {}", shorten(&format!("{code} {detail}")))),
    }
}

/// The kind of the error that a server's words mean.
pub(crate) fn kind_of_reply(words: &str) -> ErrorKind {
    let reply = redis::parse_redis_value(format!("-{words}\r\n").as_bytes()).and_then(Value::extract_error);
    reply.map_or_else(|error| Failure::of(&error).into_error().kind(), |_| ErrorKind::Protocol)
}

/// Text from elsewhere, fit for one line of a log.
fn shorten(text: &str) -> String {
    shorten_to(120, text)
}

pub(super) fn shorten_to(length: usize, text: &str) -> String {
    text.trim().chars().take(length).map(|c| if c.is_control() { ' ' } else { c }).collect()
}
