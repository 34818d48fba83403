//! How the connections of one node log in with credentials from a provider, and stay logged in.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{RedisConnectionInfo, Value};
use tokio::task::AbortHandle;

use super::credentials::{Issued, Login, Outcome};
use super::reply::Failure;
use crate::error::{Error, ErrorKind};

const FIRST_RETRY: Duration = Duration::from_secs(1);
const LONGEST_RETRY: Duration = Duration::from_secs(16);

/// What is remembered from one connection of a node to the next.
#[derive(Debug)]
pub(super) struct Session {
    login: Arc<Login>,
    /// The number of the credentials that a server last accepted: who connects again must have newer ones.
    used: AtomicU64,
}

impl Session {
    pub(super) fn new(login: Arc<Login>) -> Self {
        Self { login, used: 0.into() }
    }

    /// Credentials for a new connection. Where the provider fails, those that are still valid will do.
    pub(super) async fn credentials(&self) -> Outcome {
        let outcome = self.login.newer_than(self.used.load(Ordering::Acquire)).await;
        outcome.or_else(|error| self.login.still_valid().ok_or(error))
    }

    /// Takes note of what the server said to credentials.
    pub(super) fn settle(&self, issued: &Issued, refusal: Option<&Error>) {
        match refusal {
            None => {
                self.used.fetch_max(issued.number, Ordering::AcqRel);
                self.login.accepted();
            }
            Some(error) if error.kind() == ErrorKind::Auth => self.login.refused(issued.number, error),
            Some(_) => {}
        }
    }

    /// Keeps a connection logged in, in the background, until what this returns is dropped.
    pub(super) fn keep(
        self: &Arc<Self>,
        connection: &MultiplexedConnection,
        alive: &Arc<AtomicBool>,
        issued: Arc<Issued>,
    ) -> Renewal {
        let connection = Connected { connection: connection.clone(), alive: Arc::clone(alive) };
        Renewal(tokio::spawn(renew_in_time(Arc::clone(self), connection, issued)).abort_handle())
    }

    async fn renew(&self, connection: &Connected, before: &Issued) -> Outcome {
        let newer = self.login.newer_than(before.number).await?;
        let answer = connection.authenticate(&newer, self.login.patience()).await;
        self.settle(&newer, answer.as_ref().err());
        answer.map(|()| newer)
    }
}

/// A connection that is to stay logged in.
struct Connected {
    connection: MultiplexedConnection,
    alive: Arc<AtomicBool>,
}

impl Connected {
    async fn authenticate(&self, issued: &Issued, patience: Duration) -> Result<(), Error> {
        let command = issued.command();
        let mut connection = self.connection.clone();
        let answer = tokio::time::timeout(patience, connection.send_packed_command(&command)).await;
        let late = |_| Error::new(ErrorKind::Timeout, "the server did not answer to AUTH in time");
        let Err(error) = answer.map_err(late)?.and_then(Value::extract_error) else { return Ok(()) };
        if error.is_unrecoverable_error() {
            self.alive.store(false, Ordering::Release);
        }
        Err(Failure::of(&error).into_error())
    }

    fn is_alive(&self) -> bool {
        self.alive.load(Ordering::Acquire)
    }
}

/// The settings of a connection, with the credentials that a provider issued, if there is one.
pub(super) fn with_credentials(settings: RedisConnectionInfo, issued: Option<&Arc<Issued>>) -> RedisConnectionInfo {
    match issued {
        Some(issued) => issued.add_to(settings),
        None => settings,
    }
}

/// Logs in anew, each time before the credentials expire. Nothing else on the connection notices.
async fn renew_in_time(session: Arc<Session>, connection: Connected, mut issued: Arc<Issued>) {
    let mut failures = 0;
    while let Some(pause) = if failures == 0 { issued.until_renewal() } else { Some(retry_pause(failures)) } {
        tokio::time::sleep(pause).await;
        // The next connection has new credentials anyway.
        if !connection.is_alive() {
            return;
        }
        let outcome = session.renew(&connection, &issued).await;
        if !connection.is_alive() {
            return;
        }
        session.login.log_renewal(outcome.as_ref().err());
        match outcome {
            Ok(newer) => (issued, failures) = (newer, 0),
            Err(_) => failures += 1,
        }
    }
}

/// Doubles with each failure; the jitter keeps nodes and clients apart.
fn retry_pause(failures: u32) -> Duration {
    let longest = FIRST_RETRY.saturating_mul(1 << (failures - 1).min(10)).min(LONGEST_RETRY);
    longest.mul_f64(0.5 + fastrand::f64() / 2.0)
}

/// The task that keeps a connection logged in. It ends with this.
#[derive(Debug)]
pub(super) struct Renewal(AbortHandle);

impl Drop for Renewal {
    fn drop(&mut self) {
        self.0.abort();
    }
}
