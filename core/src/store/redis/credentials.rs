//! Credentials from a provider: asked for by one call at a time, and shared by all nodes of a client.
//!
//! The `redis` crate has a `StreamingCredentialsProvider`. Each connection subscribes to it on its own, so a cluster asks once
//! for each of its nodes; it cannot be told that the server refused what it yielded; and a stream must know by itself when
//! a connection is made anew. Here the store asks when it needs to.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use percent_encoding::percent_decode_str;
use redis::{Cmd, RedisConnectionInfo, cmd};
use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::backoff::backoff;
use super::reply::shorten_to;
use crate::credentials::{Credentials, CredentialsProvider};
use crate::error::{Error, ErrorKind};

/// Of the validity, when the provider is asked again at the latest.
const RENEWED_AT: f64 = 0.8;
/// Of the validity, how much earlier some connections renew their login than others.
const JITTER: f64 = 0.1;
/// No login is renewed sooner, however short the credentials last, and none later.
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(86_400);
/// Nodes that connect at the same time share credentials of unknown validity for so long.
const SHARED_FOR: Duration = Duration::from_secs(1);
/// A call that is not over so long after its time runs on a runtime that nobody drives.
const CALL_MARGIN: Duration = Duration::from_millis(200);

/// What a provider says may be long, in characters.
const LONGEST_MESSAGE: usize = 300;

pub(super) type Outcome = Result<Arc<Issued>, Error>;

/// Credentials as the provider issued them.
#[derive(Debug)]
pub(super) struct Issued {
    credentials: Credentials,
    /// Counts the calls of the provider.
    pub(super) number: u64,
    asked: Instant,
}

impl Issued {
    pub(super) fn add_to(&self, settings: RedisConnectionInfo) -> RedisConnectionInfo {
        let settings = settings.set_password(self.credentials.secret());
        match self.credentials.user_name() {
            Some(user) => settings.set_username(user),
            None => settings,
        }
    }

    /// Logs in on a connection that is open.
    pub(super) fn command(&self) -> Cmd {
        let mut command = cmd("AUTH");
        command.arg(self.credentials.user_name()).arg(self.credentials.secret());
        command
    }

    /// How long to wait before newer ones are asked for; none where nobody knows how long these last.
    pub(super) fn until_renewal(&self) -> Option<Duration> {
        let share = RENEWED_AT - JITTER * fastrand::f64();
        let renewed_at = self.credentials.validity()?.mul_f64(share);
        Some(renewed_at.saturating_sub(self.asked.elapsed()).clamp(SHORTEST_PAUSE, LONGEST_PAUSE))
    }

    fn is_fresh(&self) -> bool {
        self.asked.elapsed() < self.credentials.validity().map_or(SHARED_FOR, |validity| validity.mul_f64(RENEWED_AT))
    }

    fn is_valid(&self) -> bool {
        self.credentials.validity().is_some_and(|validity| self.asked.elapsed() < validity)
    }
}

/// The login of a client.
pub(super) struct Login {
    provider: CredentialsProvider,
    patience: Duration,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    newest: Option<Arc<Issued>>,
    /// Whether a server refused the newest.
    is_refused: bool,
    /// Calls of the provider so far.
    calls: u64,
    call: Weak<Call>,
    /// Calls in a row that brought nothing that a server accepts.
    failures: u32,
    /// What is said in place of a call until that time.
    pause: Option<(Error, Instant)>,
    /// Whether the log says that renewing fails.
    is_logged: bool,
}

/// A call of the provider. It ends when nobody waits for it any more.
struct Call {
    outcome: watch::Receiver<Option<Outcome>>,
    task: AbortHandle,
    began: Instant,
}

impl Drop for Call {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Login {
    pub(super) fn new(provider: CredentialsProvider, connect_timeout: Duration) -> Self {
        // So that an attempt to connect has time left to say that it was the provider who was late.
        Self { provider, patience: connect_timeout.mul_f64(0.9), state: Mutex::default() }
    }

    pub(super) fn patience(&self) -> Duration {
        self.patience
    }

    /// Credentials that were issued after those of a number. Asks the provider, unless others just did.
    pub(super) async fn newer_than(self: &Arc<Self>, number: u64) -> Outcome {
        // Twice, since a call ends without a word when the runtime that it ran on is gone.
        for _ in 0..2 {
            let call = match self.fresh_or_call(number)? {
                Ok(issued) => return Ok(issued),
                Err(call) => call,
            };
            if let Ok(outcome) = call.outcome.clone().wait_for(Option::is_some).await {
                return outcome.clone().unwrap_or_else(|| Err(gone()));
            }
        }
        Err(gone())
    }

    /// The newest credentials while they are valid for sure.
    pub(super) fn still_valid(&self) -> Option<Arc<Issued>> {
        let state = self.lock();
        state.newest.clone().filter(|newest| !state.is_refused && newest.is_valid())
    }

    fn fresh_or_call(self: &Arc<Self>, number: u64) -> Result<Result<Arc<Issued>, Arc<Call>>, Error> {
        let mut state = self.lock();
        let fresh = state.newest.as_ref().filter(|newest| newest.number > number && newest.is_fresh());
        if let Some(fresh) = fresh.filter(|_| !state.is_refused) {
            return Ok(Ok(Arc::clone(fresh)));
        }
        if let Some(call) = state.call.upgrade().filter(|call| call.goes_on(self.patience)) {
            return Ok(Err(call));
        }
        match &state.pause {
            Some((error, until)) if Instant::now() < *until => Err(error.clone()),
            _ => Ok(Err(self.begin(&mut state))),
        }
    }

    fn begin(self: &Arc<Self>, state: &mut State) -> Arc<Call> {
        state.calls += 1;
        let (sender, outcome) = watch::channel(None);
        let (login, provider, patience) = (Arc::downgrade(self), Arc::clone(&self.provider), self.patience);
        let (number, asked) = (state.calls, Instant::now());
        let task = tokio::spawn(async move {
            let provided = ask(provider, patience).await;
            if let Some(login) = login.upgrade() {
                sender.send_replace(Some(login.settle(provided, number, asked)));
            }
        });
        let call = Arc::new(Call { outcome, task: task.abort_handle(), began: asked });
        state.call = Arc::downgrade(&call);
        call
    }

    fn settle(&self, provided: Result<Credentials, Error>, number: u64, asked: Instant) -> Outcome {
        let mut state = self.lock();
        match provided {
            Ok(credentials) => {
                let issued = Arc::new(Issued { credentials, number, asked });
                if state.newest.as_ref().is_none_or(|newest| newest.number < number) {
                    (state.newest, state.is_refused, state.pause) = (Some(Arc::clone(&issued)), false, None);
                }
                Ok(issued)
            }
            Err(error) => {
                let error = without_secret(&error, state.newest.as_deref());
                state.fail(&error);
                Err(error)
            }
        }
    }

    pub(super) fn accepted(&self) {
        self.lock().failures = 0;
    }

    /// Takes note that a server refused credentials: nobody is to be given them again.
    pub(super) fn refused(&self, number: u64, error: &Error) {
        let mut state = self.lock();
        if !state.is_refused && state.newest.as_ref().is_some_and(|newest| newest.number == number) {
            state.is_refused = true;
            state.fail(error);
        }
    }

    /// Logs the first renewal that fails, and the first that succeeds again.
    pub(super) fn log_renewal(&self, error: Option<&Error>) {
        let was_logged = std::mem::replace(&mut self.lock().is_logged, error.is_some());
        match error {
            Some(error) if !was_logged => {
                tracing::warn!(%error, "the credentials could not be renewed; this is tried again until it succeeds");
            }
            None if was_logged => tracing::info!("the credentials were renewed"),
            _ => {}
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn fail(&mut self, error: &Error) {
        self.pause = Some((error.clone(), Instant::now() + backoff(self.failures)));
        self.failures = self.failures.saturating_add(1);
    }
}

impl Call {
    fn goes_on(&self, patience: Duration) -> bool {
        let has_time = self.began.elapsed() < patience + CALL_MARGIN;
        has_time && self.outcome.borrow().is_none() && self.outcome.has_changed().is_ok()
    }
}

/// Nothing of the provider, which is the user's, or of what it yielded.
impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").finish_non_exhaustive()
    }
}

fn gone() -> Error {
    Error::new(ErrorKind::Connection, "the call of the credentials provider ended together with its runtime")
}

/// Asks the provider, which may fail, hang or panic.
async fn ask(provider: CredentialsProvider, patience: Duration) -> Result<Credentials, Error> {
    let call = async { tokio::time::timeout(patience, provider()).await };
    let (kind, what) = match AssertUnwindSafe(call).catch_unwind().await {
        Ok(Ok(Ok(credentials))) => return Ok(credentials),
        Ok(Ok(Err(error))) => (ErrorKind::Auth, format!("failed: {error}")),
        Ok(Err(_)) => (ErrorKind::Timeout, format!("did not answer within {patience:?}; connect_timeout limits it")),
        Err(_) => (ErrorKind::Auth, "panicked".to_owned()),
    };
    Err(Error::new(kind, format!("the credentials provider {what}")))
}

/// The provider's own words, fit for one line of a log, unless they quote the secret that it yielded last.
fn without_secret(error: &Error, newest: Option<&Issued>) -> Error {
    let secret = newest.map_or("", |newest| newest.credentials.secret());
    let said = error.message();
    let holds_secret = said.contains(secret) || percent_decode_str(said).decode_utf8_lossy().contains(secret);
    if !secret.is_empty() && holds_secret {
        let message = "the credentials provider failed, in words that hold its last password and are not repeated";
        return Error::new(error.kind(), message);
    }
    Error::new(error.kind(), shorten_to(LONGEST_MESSAGE, said))
}
