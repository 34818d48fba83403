//! What the field cases share: the stores they are played on, and calls at a time of the test's choice.

use std::fmt;
use std::time::Duration;

use grifo::testing::{Operation, decide_at};
use grifo::{Client, ClientBuilder, Decision, FailurePolicy, Limiter};

use crate::server::Server;

/// The names of all algorithms in the text form of a Limit.
pub const ALGORITHMS: [&str; 4] = ["token-bucket", "sliding-window", "sliding-window-counter", "fixed-window"];

/// A time at which windows of up to an hour begin.
pub const START: Duration = Duration::from_secs(1_800_000_000);

/// Longer than any machine is too busy to answer.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// The same rule for every algorithm: `COUNT/PERIOD`.
#[must_use]
pub fn of_each_algorithm(rule: &str) -> Vec<String> {
    ALGORITHMS.iter().map(|algorithm| format!("{algorithm} {rule}")).collect()
}

/// A store for one case. Dropped, it makes sure that no key in it lives for ever.
#[derive(Debug)]
pub struct Place {
    server: Option<Server>,
}

impl Place {
    /// Memory, and the default server.
    #[must_use]
    pub fn each() -> [Self; 2] {
        [Self::memory(), Self::redis()]
    }

    /// The embedded store; each client has one of its own.
    #[must_use]
    pub const fn memory() -> Self {
        Self { server: None }
    }

    /// The default server.
    #[must_use]
    pub fn redis() -> Self {
        Self::on(Server::start_default())
    }

    /// A given server.
    #[must_use]
    pub const fn on(server: Server) -> Self {
        Self { server: Some(server) }
    }

    /// Its URL.
    #[must_use]
    pub fn url(&self) -> String {
        self.server.as_ref().map_or_else(|| "memory://".to_owned(), Server::url)
    }

    /// Its server, unless it is memory.
    #[must_use]
    pub const fn server(&self) -> Option<&Server> {
        self.server.as_ref()
    }

    /// A client that is patient and raises what goes wrong.
    #[must_use]
    pub fn client(&self) -> Client {
        patient(&self.url()).build().expect("a good URL")
    }

    /// A limiter called `case` on a new client.
    #[must_use]
    pub fn limiter(&self, limits: &str) -> Limiter {
        self.client().limiter("case", limits).expect("good limits")
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.server.as_ref().map_or("memory", |server| server.kind().name()))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some(server) = self.server.as_mut().filter(|_| !std::thread::panicking()) else { return };
        if !server.is_running() {
            return;
        }
        for key in every_key(server) {
            assert_ne!(pttl(server, &key), -1, "{} has no TTL", String::from_utf8_lossy(&key));
        }
    }
}

/// Options of a client that is patient and raises what goes wrong.
pub fn patient(url: &str) -> ClientBuilder {
    Client::builder(url).timeout(PATIENCE).on_failure(FailurePolicy::Raise).deny_cache_max(Duration::ZERO)
}

/// All keys of a server, those of grifo's own use among them.
#[must_use]
pub fn every_key(server: &Server) -> Vec<Vec<u8>> {
    server.command(&["KEYS", "*"])
}

/// The keys of a server that hold the state of a Limit.
#[must_use]
pub fn stored_keys(server: &Server) -> Vec<Vec<u8>> {
    let mut keys = every_key(server);
    keys.retain(|key| !String::from_utf8_lossy(key).contains("}:1helper:"));
    keys
}

/// The only key of a server.
///
/// # Panics
/// When there is none, or more than one.
#[must_use]
pub fn stored_key(server: &Server) -> Vec<u8> {
    let mut keys = stored_keys(server);
    assert_eq!(keys.len(), 1, "{keys:?}");
    keys.remove(0)
}

/// Milliseconds that a key has left.
#[must_use]
pub fn pttl(server: &Server, key: &[u8]) -> i64 {
    server.command(&[b"PTTL".as_slice(), key])
}

/// When a key expires, in milliseconds since the Unix epoch; exact to two milliseconds.
#[must_use]
pub fn expires_at(server: &Server, key: &[u8]) -> i64 {
    let script = "local t = redis.call('TIME') return t[1] * 1000 + t[2] / 1000 + redis.call('PTTL', KEYS[1])";
    server.command(&[b"EVAL".as_slice(), script.as_bytes(), b"1", key])
}

/// What a server keeps under a key, without its TTL.
#[must_use]
pub fn dump(server: &Server, key: &[u8]) -> Vec<u8> {
    server.command(&[b"DUMP".as_slice(), key])
}

/// The server's clock, since the Unix epoch.
#[must_use]
pub fn server_time(server: &Server) -> Duration {
    let (seconds, micros): (u64, u64) = server.command(&["TIME"]);
    Duration::from_secs(seconds) + Duration::from_micros(micros)
}

async fn decide(limiter: &Limiter, operation: Operation, now: Duration, key: &str, amount: u64) -> Decision {
    let decisions = decide_at(operation, now, &[(limiter, key.as_bytes(), amount)]).await;
    decisions.expect("the store decides").remove(0)
}

/// A check at a time.
pub async fn check_at(limiter: &Limiter, now: Duration, key: &str, cost: u64) -> Decision {
    decide(limiter, Operation::Check, now, key, cost).await
}

/// A peek at a time.
pub async fn peek_at(limiter: &Limiter, now: Duration, key: &str) -> Decision {
    decide(limiter, Operation::Peek, now, key, 1).await
}

/// A refund at a time.
pub async fn refund_at(limiter: &Limiter, now: Duration, key: &str, n: u64) -> Decision {
    decide(limiter, Operation::Refund, now, key, n).await
}

/// How many of `count` checks of cost 1 are allowed, one after the other at the same time.
///
/// # Panics
/// When the store does not decide.
pub async fn hits_at(limiter: &Limiter, now: Duration, key: &str, count: usize) -> usize {
    let entries = vec![(limiter, key.as_bytes(), 1); count];
    let decisions = decide_at(Operation::Check, now, &entries).await.expect("the store decides");
    decisions.iter().filter(|decision| decision.allowed).count()
}

/// Whether each of some costs is allowed, one after the other.
///
/// # Panics
/// When the store does not decide.
pub async fn allowed(limiter: &Limiter, key: &str, costs: &[u64]) -> Vec<bool> {
    let mut allowed = Vec::new();
    for cost in costs {
        allowed.push(limiter.check_n(key, *cost).await.expect("the store decides").allowed);
    }
    allowed
}

/// Polls until something holds.
///
/// # Panics
/// When it does not within `limit`.
pub async fn eventually<F: Future<Output = bool>>(what: &str, limit: Duration, mut holds: impl FnMut() -> F) {
    let end = tokio::time::Instant::now() + limit;
    while !holds().await {
        assert!(tokio::time::Instant::now() < end, "not within {limit:?}: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
