//! The record of how many partitions the keys of a store are divided into.
//!
//! Two clients that divide them differently would count one key twice. So the store says how many there are, under the
//! prefix: who names no number takes that one over, who names another is refused. The record is read beside the first call,
//! not before it; where that call turns out to have used another number, it is made again with the right one. Where the
//! record is out of reach, since its node is down, calls go on with the number that was named, or else the default.

use std::future::Future;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use redis::Value;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{Instant as TokioInstant, timeout_at};

use super::call::Call;
use crate::clock::microseconds;
use crate::error::{Error, ErrorKind};
use crate::key::{Partitions, helper_key};
use crate::limit::Limit;
use crate::store::{Entry, Operation, Terms};

/// How much longer the record lives than any key.
const LEEWAY: Duration = Duration::from_secs(86_400);
/// The record is renewed beside a call, so often at most.
const RENEWED_EVERY: Duration = Duration::from_secs(60);
/// The pause before a record that could not be read is asked for again, and one that was not there.
const PAUSE: Duration = Duration::from_millis(100);
const ABSENT: Duration = Duration::from_secs(1);
/// Reading takes no longer.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long an answer waits at most for a record that another node is just telling.
const GRACE: Duration = Duration::from_millis(10);

/// The outcome of reading, once there is one.
type Outcome = watch::Receiver<Option<Result<(), Error>>>;

/// What is known of the record.
#[derive(Debug)]
pub(super) struct Record {
    key: String,
    named: Option<Partitions>,
    state: Arc<Mutex<State>>,
    settled: Arc<Settled>,
}

/// What most calls need to know, without a lock: for so long after `since` nothing is to be read or renewed by calls whose keys
/// live no longer than the record outlives.
#[derive(Debug)]
struct Settled {
    since: Instant,
    micros: AtomicU64,
    outlived_micros: AtomicU64,
    partitions: AtomicU16,
}

impl Settled {
    /// The partitions, if there is nothing to be done about them.
    fn partitions(&self, now: Instant, longest_reset: Duration) -> Option<Partitions> {
        let is_quiet = microseconds(now.saturating_duration_since(self.since)) < self.micros.load(Ordering::Acquire);
        let is_outlived = microseconds(longest_reset) <= self.outlived_micros.load(Ordering::Relaxed);
        (is_quiet && is_outlived).then(|| Partitions::new(self.partitions.load(Ordering::Relaxed)).ok()).flatten()
    }

    /// Tells what is settled by now; nothing, where there is no agreement.
    fn tell(&self, state: &State, agreed: Option<Partitions>) {
        let until = state.read_due.min(state.renewal_due).saturating_duration_since(self.since);
        self.partitions.store(agreed.map_or(0, Partitions::count), Ordering::Relaxed);
        self.outlived_micros.store(microseconds(state.outlived), Ordering::Relaxed);
        self.micros.store(agreed.map_or(0, |_| microseconds(until)), Ordering::Release);
    }
}

#[derive(Debug)]
struct State {
    recorded: Option<Partitions>,
    /// The longest that a key of this client may live, and how long one may that the record outlives.
    longest_reset: Duration,
    outlived: Duration,
    reading: Option<Reading>,
    /// When any call is to read the record, and when one that may write is to renew it.
    read_due: Instant,
    renewal_due: Instant,
    /// No earlier, since reading has failed.
    not_before: Instant,
}

#[derive(Debug)]
struct Reading {
    began: Instant,
    outcome: Outcome,
    task: AbortHandle,
}

/// The partitions that a call uses, and what may yet be heard about them.
pub(super) struct InUse {
    pub(super) partitions: Partitions,
    since: Instant,
    unconfirmed: Option<Outcome>,
    /// Whether the call belongs to the first round trip, and so may wait for what is heard.
    waits: bool,
}

impl InUse {
    /// Whether nothing more is to be heard about them.
    pub(super) const fn is_confirmed(&self) -> bool {
        self.unconfirmed.is_none()
    }
}

impl Record {
    pub(super) fn new(prefix: &str, named: Option<Partitions>) -> Self {
        let now = Instant::now();
        let state = State {
            recorded: None,
            longest_reset: Duration::ZERO,
            outlived: Duration::ZERO,
            reading: None,
            read_due: now,
            renewal_due: now,
            not_before: now,
        };
        let settled =
            Settled { since: now, micros: 0.into(), outlived_micros: 0.into(), partitions: AtomicU16::new(0) };
        let key = helper_key(prefix, "partitions");
        Self { key, named, state: Arc::new(Mutex::new(state)), settled: Arc::new(settled) }
    }

    /// The partitions that a call is to use now. Begins to read the record where that is due.
    /// # Errors
    /// [`ErrorKind::InvalidOptions`] when the store has recorded another number than was named.
    pub(super) fn in_use<F>(
        &self,
        terms: Terms,
        entries: &[Entry<'_>],
        read: impl FnOnce(Call) -> F,
    ) -> Result<InUse, Error>
    where
        F: Future<Output = Result<Value, Error>> + Send + 'static,
    {
        // A peek writes nothing, not even this.
        let writes = terms.operation != Operation::Peek;
        let resets = entries.iter().filter(|_| writes).flat_map(|entry| entry.limits.iter()).map(Limit::longest_reset);
        let longest_reset = resets.max().unwrap_or_default();
        let now = terms.asked;
        if let Some(partitions) = self.settled.partitions(now, longest_reset) {
            return Ok(InUse { partitions, since: now, unconfirmed: None, waits: false });
        }
        let mut state = lock(&self.state);
        if terms.now.is_some() {
            // A test or a replay, which is to leave nothing behind.
            let partitions = self.agreed(state.recorded)?;
            return Ok(InUse { partitions, since: now, unconfirmed: None, waits: false });
        }
        state.longest_reset = state.longest_reset.max(longest_reset);
        if state.is_due(writes, now) {
            let call = if writes { self.call(&state) } else { Call::of_record(&self.key, None) };
            self.begin(&mut state, writes, read(call));
        }
        let reading = state.reading.as_ref().filter(|_| state.recorded.is_none());
        Ok(InUse {
            partitions: self.agreed(state.recorded)?,
            since: now,
            unconfirmed: reading.map(|reading| reading.outcome.clone()),
            waits: reading.is_some_and(|reading| now.saturating_duration_since(reading.began) < GRACE),
        })
    }

    /// The partitions that a call should have used instead, if the record has told so meanwhile.
    pub(super) async fn instead_of(&self, used: InUse, deadline: TokioInstant) -> Result<Option<Partitions>, Error> {
        let Some(mut outcome) = used.unconfirmed else { return Ok(None) };
        if used.waits {
            // No longer than the call has taken, lest its deadline pass. Without an answer there is nothing to go by.
            let patience = used.since.elapsed().min(GRACE);
            let end = deadline.min(TokioInstant::now() + patience);
            let _ = timeout_at(end, outcome.wait_for(Option::is_some)).await;
        }
        let agreed = self.agreed(lock(&self.state).recorded)?;
        Ok((agreed != used.partitions).then_some(agreed))
    }

    /// Reads the record now.
    pub(super) async fn confirm<F>(&self, read: impl FnOnce(Call) -> F) -> Result<(), Error>
    where
        F: Future<Output = Result<Value, Error>>,
    {
        let (call, outlived) = {
            let state = lock(&self.state);
            (self.call(&state), state.longest_reset)
        };
        settle(&self.state, &self.settled, self.named, Some(outlived), read(call).await)?;
        self.agreed(lock(&self.state).recorded).map(drop)
    }

    /// Asks, and records anew what is in use, should the record have been lost meanwhile.
    fn call(&self, state: &State) -> Call {
        let partitions = self.named.or(state.recorded).unwrap_or_default();
        Call::of_record(&self.key, Some((partitions.count(), state.longest_reset + LEEWAY)))
    }

    pub(super) fn close(&self) {
        if let Some(reading) = lock(&self.state).reading.take() {
            reading.task.abort();
        }
    }

    /// What both sides say, or the refusal.
    fn agreed(&self, recorded: Option<Partitions>) -> Result<Partitions, Error> {
        match (self.named, recorded) {
            (Some(named), Some(recorded)) if named != recorded => Err(mismatch(named, recorded)),
            (named, recorded) => Ok(recorded.or(named).unwrap_or_default()),
        }
    }

    fn begin(
        &self,
        state: &mut State,
        writes: bool,
        read: impl Future<Output = Result<Value, Error>> + Send + 'static,
    ) {
        if let Some(reading) = state.reading.take() {
            reading.task.abort();
        }
        let (sender, outcome) = watch::channel(None);
        let (shared, settled) = (Arc::downgrade(&self.state), Arc::clone(&self.settled));
        let (named, outlived) = (self.named, writes.then_some(state.longest_reset));
        let task = tokio::spawn(async move {
            let late = || Error::new(ErrorKind::Timeout, "the store did not tell its partitions in time");
            let value = tokio::time::timeout(PATIENCE, read).await.unwrap_or_else(|_| Err(late()));
            if let Some(state) = shared.upgrade() {
                let outcome = settle(&state, &settled, named, outlived, value);
                sender.send_replace(Some(outcome));
            }
        });
        state.reading = Some(Reading { began: Instant::now(), outcome, task: task.abort_handle() });
    }
}

impl State {
    fn is_due(&self, writes: bool, now: Instant) -> bool {
        let is_due = match writes {
            true => self.longest_reset > self.outlived || self.renewal_due <= now,
            false => self.read_due <= now,
        };
        is_due && self.not_before <= now && !self.is_reading()
    }

    /// Whether the record is just being read, on a runtime that somebody drives.
    fn is_reading(&self) -> bool {
        let is_open = |outcome: &Outcome| outcome.borrow().is_none() && outcome.has_changed().is_ok();
        let is_reading = |reading: &Reading| is_open(&reading.outcome) && reading.began.elapsed() < 2 * PATIENCE;
        self.reading.as_ref().is_some_and(is_reading)
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        self.close();
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes note of what the store has said. `outlived` is how long a key may live that the record now outlives, if it was
/// renewed.
fn settle(
    state: &Mutex<State>,
    settled: &Settled,
    named: Option<Partitions>,
    outlived: Option<Duration>,
    value: Result<Value, Error>,
) -> Result<(), Error> {
    let recorded = value.and_then(read_count);
    let now = Instant::now();
    let mut state = lock(state);
    let Some(recorded) = recorded.inspect_err(|_| state.not_before = now + PAUSE)? else {
        // Whoever writes next records it: what was named, or else what this client has used so far.
        (state.read_due, state.renewal_due) = (now + ABSENT, now);
        state.recorded = state.recorded.filter(|_| named.is_none());
        settled.tell(&state, None);
        return Ok(());
    };
    state.read_due = now + RENEWED_EVERY;
    if let Some(outlived) = outlived {
        (state.outlived, state.renewal_due) = (outlived, state.read_due);
    }
    let is_news = state.recorded.replace(recorded) != Some(recorded);
    settled.tell(&state, Some(recorded).filter(|recorded| named.is_none_or(|named| named == *recorded)));
    match named {
        Some(named) if is_news && named != recorded => {
            tracing::error!(error = %mismatch(named, recorded), "the failure policy answers");
        }
        None if is_news && recorded != Partitions::default() => {
            tracing::info!(partitions = recorded.count(), "the store's keys are divided as it has recorded");
        }
        _ => {}
    }
    Ok(())
}

/// How many there are; none where nothing is recorded.
fn read_count(value: Value) -> Result<Option<Partitions>, Error> {
    let unreadable =
        || Error::new(ErrorKind::Protocol, "the server's record of partitions is not of the expected form");
    match value {
        Value::Int(0) => Ok(None),
        Value::Int(count) => u16::try_from(count).map_err(|_| unreadable()).and_then(Partitions::new).map(Some),
        _ => Err(unreadable()),
    }
}

fn mismatch(named: Partitions, recorded: Partitions) -> Error {
    let (named, recorded) = (named.count(), recorded.count());
    let message = format!(
        "the store's keys are divided into {recorded} partitions, but the option `partitions` says {named}; \
         take the option out, or choose another prefix"
    );
    Error::new(ErrorKind::InvalidOptions, message)
}
