//! For tests of your own code: a clock that stands still until told otherwise.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::clock::{Clock, microseconds, sealed};
use crate::decision::Decision;
use crate::error::{Error, ErrorKind};
use crate::limiter::Limiter;
use crate::store;

/// The year 2155: later times are not exact with the longest periods.
const LATEST: Duration = Duration::from_secs(5_850_000_000);

/// A clock for `memory://` that moves only when told to, so that tests need not sleep.
/// Clones are the same clock.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), grifo::Error> {
/// use std::time::Duration;
///
/// let clock = grifo::testing::ManualClock::new();
/// let client = grifo::Client::builder("memory://").clock(clock.clone()).build()?;
/// let api = client.limiter("api", "1/min")?;
/// assert!(api.check("user:42").await?.allowed);
/// assert!(!api.check("user:42").await?.allowed);
/// clock.advance(Duration::from_secs(60));
/// assert!(api.check("user:42").await?.allowed);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct ManualClock {
    time: Arc<watch::Sender<u64>>,
}

impl ManualClock {
    /// A clock at 2001-09-09 01:46:40 UTC, the billionth second since the epoch: a whole number of seconds, and so the start
    /// of a window of one second.
    #[must_use]
    pub fn new() -> Self {
        Self::at(Duration::from_secs(1_000_000_000))
    }

    /// A clock at a time since the Unix epoch, for tests of what happens at the edge of a window.
    #[must_use]
    pub fn at(since_epoch: Duration) -> Self {
        Self { time: Arc::new(watch::Sender::new(microseconds(since_epoch.min(LATEST)))) }
    }

    /// Moves the clock on, to the microsecond (rounded down), and wakes those who wait for that time.
    pub fn advance(&self, by: Duration) {
        let latest = microseconds(LATEST);
        self.time.send_modify(|time| *time = time.saturating_add(microseconds(by)).min(latest));
    }

    /// The time since the Unix epoch.
    #[must_use]
    pub fn since_epoch(&self) -> Duration {
        Duration::from_micros(self.now())
    }
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::new()
    }
}

impl sealed::Sealed for ManualClock {}

impl Clock for ManualClock {
    fn now(&self) -> u64 {
        *self.time.borrow()
    }

    fn needs_runtime(&self) -> bool {
        false
    }

    fn sleep_until(&self, time: u64) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move {
            let mut changes = self.time.subscribe();
            // The sender lives in `self`, so waiting cannot fail.
            let _ = changes.wait_for(|now| *now >= time).await;
        })
    }
}

/// Decides at a given time since the Unix epoch instead of the store's own, for replays of what has happened and for
/// conformance tests. Each entry is a limiter, a key and an amount; all of one call are decided in order, in one step, each
/// with its own Limits.
///
/// Keys that are judged so stay in the store ten minutes longer than they are needed.
/// # Errors
/// As for the same call of a [`Limiter`].
pub async fn decide_at(
    operation: Operation,
    now: Duration,
    entries: &[(&Limiter, &[u8], u64)],
) -> Result<Vec<Decision>, Error> {
    let Some((first, ..)) = entries.first() else { return Ok(Vec::new()) };
    if now > LATEST {
        return Err(Error::new(ErrorKind::InvalidOptions, format!("the latest time is {LATEST:?} since the epoch")));
    }
    if entries.iter().any(|(limiter, ..)| !limiter.shares_client_with(first)) {
        return Err(Error::new(ErrorKind::InvalidOptions, "all limiters of a call must be of one client"));
    }
    let call: Vec<_> = entries.iter().map(|(limiter, key, amount)| limiter.entry(key, *amount)).collect();
    first.decide_all(operation.into(), &call, Some(microseconds(now))).await
}

/// The kind of the error that a server's words mean, such as `NOAUTH Authentication required.`, for tests of all versions.
#[doc(hidden)]
#[must_use]
pub fn kind_of_reply(words: &str) -> ErrorKind {
    store::redis::kind_of_reply(words)
}

/// What [`decide_at`] does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// [`Limiter::check_n`]
    Check,
    /// [`Limiter::peek`]
    Peek,
    /// [`Limiter::refund`]
    Refund,
    /// [`Limiter::reset`]
    Reset,
}

impl From<Operation> for store::Operation {
    fn from(operation: Operation) -> Self {
        match operation {
            Operation::Check => Self::Check,
            Operation::Peek => Self::Peek,
            Operation::Refund => Self::Refund,
            Operation::Reset => Self::Reset,
        }
    }
}
