//! What stands between a limiter and its store: the deadline, and who answers when the store does not.

mod deadline;
mod fallback;
mod learnt_clock;
mod options;
mod turns;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::Instant as TokioInstant;

use self::deadline::within;
pub(crate) use self::deadline::{first, no_runtime};
pub(crate) use self::fallback::{Fallback, Share};
pub use self::options::FailurePolicy;
pub(crate) use self::options::{Options, check_share, check_timeout};
use self::turns::Turns;
pub(crate) use self::turns::{Place, Turn};
use crate::clock::Clock;
use crate::decision::{Decision, LimitDecision, Source};
use crate::error::{self, Error, ErrorKind};
use crate::limit::{Limit, Limits};
use crate::stats::{Counters, Stats};
use crate::store::{AnyStore, Entry, Operation, Pong, Store, Terms, Told};

/// The pause between two attempts to make the store ready.
const CONNECT_PAUSE: Duration = Duration::from_millis(20);
/// Two lines in the log about trouble are no closer together, in microseconds.
const LOG_PAUSE: u64 = 10_000_000;
/// When a store that is out of reach is tried again, where nothing better is known.
const NEXT_TRY: Duration = Duration::from_millis(100);

/// A store behind its guard.
#[derive(Debug)]
pub(crate) struct Guard {
    store: AnyStore,
    fallback: Fallback,
    counters: Counters,
    clock: Arc<dyn Clock>,
    turns: Turns,
    /// Whether the log says that the store fails.
    failing: AtomicBool,
    /// When the log last said so.
    logged_at: AtomicU64,
    closed: AtomicBool,
    closing: Notify,
}

impl Guard {
    /// Guards a store. `clock` is the one that waits are measured by.
    pub(crate) fn new(store: AnyStore, fallback: Fallback, clock: Arc<dyn Clock>) -> Self {
        Self {
            store,
            fallback,
            counters: Counters::default(),
            clock,
            turns: Turns::default(),
            failing: AtomicBool::new(false),
            logged_at: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            closing: Notify::new(),
        }
    }

    pub(crate) fn check_open(&self) -> Result<(), Error> {
        if self.closed.load(Ordering::Acquire) {
            return Err(error::closed());
        }
        Ok(())
    }

    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.closing.notify_waiters();
        self.store.close();
    }

    /// The time that waits are measured by.
    pub(crate) fn now(&self) -> u64 {
        self.clock.now()
    }

    /// Ends at a time, or as an error when the client is closed before.
    pub(crate) async fn sleep_until(&self, time: u64) -> Result<(), Error> {
        if self.clock.needs_runtime() && Handle::try_current().is_err() {
            return Err(no_runtime());
        }
        let closing = self.closing.notified();
        self.check_open()?;
        match first(self.clock.sleep_until(time), closing).await {
            Some(()) => Ok(()),
            None => self.check_open(),
        }
    }

    /// Whether the store answers without waiting for anything, and serves this process alone.
    pub(crate) const fn is_immediate(&self) -> bool {
        self.store.is_immediate()
    }

    /// A place in line for a key.
    pub(crate) fn enter_line(
        &self,
        limiter: &Arc<str>,
        limits: &Arc<Limits>,
        key: &[u8],
        cost: u64,
    ) -> Result<Place<'_>, Error> {
        self.turns.enter(limiter, limits, key, cost)
    }

    /// Gives tokens back to where they were taken from, and only there.
    pub(crate) async fn give_back(&self, options: &Options, source: Source, entry: &Entry<'_>) -> Result<(), Error> {
        if source == Source::Fallback {
            let _ = self.fallback.decide(options.share, Operation::Refund, entry, NEXT_TRY);
            return Ok(());
        }
        self.ask(options, Operation::Refund, entry).await.map(drop)
    }

    pub(crate) fn stats(&self) -> Stats {
        self.counters.read(self.store.reloads())
    }

    /// Decides one entry: from the Limits alone where a cost can never pass, else by the store, else by the policy.
    pub(crate) async fn decide_one(
        &self,
        options: &Options,
        operation: Operation,
        entry: &Entry<'_>,
    ) -> Result<Decision, Error> {
        self.counters.add_decisions(1);
        if let Some(decision) = impossible(operation, entry) {
            return Ok(decision);
        }
        match self.ask(options, operation, entry).await {
            Ok(told) => Ok(self.accept(operation, entry, &told, None)),
            Err(error) => self.degrade(options, operation, entry, error),
        }
    }

    async fn ask(&self, options: &Options, operation: Operation, entry: &Entry<'_>) -> Result<Told, Error> {
        if let AnyStore::Memory(store) = &self.store {
            return Ok(store.decide_now(operation, entry, None));
        }
        let terms = Terms { operation, now: None, deadline: TokioInstant::now() + options.timeout };
        within(terms.deadline, self.store.decide_one(terms, entry)).await
    }

    /// The same for many entries, in order: each is answered by whatever can decide it.
    pub(crate) async fn decide(
        &self,
        options: &Options,
        operation: Operation,
        entries: &[Entry<'_>],
        now: Option<u64>,
    ) -> Result<Vec<Decision>, Error> {
        self.counters.add_decisions(entries.len());
        let mut decisions: Vec<Option<Decision>> = entries.iter().map(|entry| impossible(operation, entry)).collect();
        let open: Vec<usize> = (0..entries.len()).filter(|place| decisions[*place].is_none()).collect();
        let asked: Vec<Entry<'_>> = open.iter().map(|place| entries[*place]).collect();
        let outcomes = self.ask_all(options, operation, &asked, now).await;
        for ((place, entry), outcome) in open.into_iter().zip(&asked).zip(outcomes) {
            decisions[place] = Some(match outcome {
                Ok(told) => self.accept(operation, entry, &told, now),
                Err(error) => self.degrade(options, operation, entry, error)?,
            });
        }
        let undecided = || Error::new(ErrorKind::Internal, "a key was left undecided");
        decisions.into_iter().collect::<Option<_>>().ok_or_else(undecided)
    }

    async fn ask_all(
        &self,
        options: &Options,
        operation: Operation,
        entries: &[Entry<'_>],
        now: Option<u64>,
    ) -> Vec<Result<Told, Error>> {
        if let AnyStore::Memory(store) = &self.store {
            return entries.iter().map(|entry| Ok(store.decide_now(operation, entry, now))).collect();
        }
        let terms = Terms { operation, now, deadline: TokioInstant::now() + options.timeout };
        let outcomes = within(terms.deadline, async { Ok(self.store.decide(terms, entries).await) }).await;
        outcomes.unwrap_or_else(|error| vec![Err(error); entries.len()])
    }

    fn accept(&self, operation: Operation, entry: &Entry<'_>, told: &Told, now: Option<u64>) -> Decision {
        if told.healed > 0 {
            self.counters.add_healed(told.healed);
        }
        if let Some(time) = told.now.filter(|_| now.is_none()) {
            self.fallback.learn_time(time);
        }
        if self.failing.load(Ordering::Relaxed) && self.failing.swap(false, Ordering::Relaxed) {
            tracing::info!("the store decides again");
        }
        told.answer.into_decision(entry.limits, operation.judged_cost(entry.amount))
    }

    /// Answers in the store's place.
    fn degrade(
        &self,
        options: &Options,
        operation: Operation,
        entry: &Entry<'_>,
        error: Error,
    ) -> Result<Decision, Error> {
        // Whatever ended together with the client.
        self.check_open()?;
        if !error.kind().is_of_the_store() {
            return Err(error);
        }
        self.counters.add_degraded(1);
        self.log_trouble(options, &error);
        let decision = match options.on_failure {
            FailurePolicy::Open => open(entry),
            FailurePolicy::Closed => closed(entry, self.next_try()),
            FailurePolicy::Local => self.fallback.decide(options.share, operation, entry, self.next_try()),
            FailurePolicy::Raise => return Err(error),
        };
        Ok(Decision { reason: Some(error.kind()), ..decision })
    }

    /// One line when trouble begins, and no more than one in a while.
    fn log_trouble(&self, options: &Options, error: &Error) {
        let now = self.now();
        let last = self.logged_at.load(Ordering::Relaxed);
        let is_due = last == 0 || now.saturating_sub(last) >= LOG_PAUSE;
        if is_due && self.logged_at.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            self.failing.store(true, Ordering::Relaxed);
            tracing::warn!(%error, policy = ?options.on_failure, "the store does not decide; the failure policy answers");
        }
    }

    fn next_try(&self) -> Duration {
        self.store.next_attempt().map_or(NEXT_TRY, |next| next.saturating_duration_since(Instant::now()))
    }

    /// Makes the store ready; tries again what may pass, until the time is up.
    pub(crate) async fn connect(&self, timeout: Duration) -> Result<(), Error> {
        if self.store.is_immediate() {
            return Ok(());
        }
        let mut last = None;
        let work = async {
            loop {
                match self.store.connect().await {
                    Err(error) if matches!(error.kind(), ErrorKind::Connection | ErrorKind::Unavailable) => {
                        last = Some(error);
                        tokio::time::sleep(CONNECT_PAUSE).await;
                    }
                    outcome => return outcome,
                }
            }
        };
        let outcome = within(TokioInstant::now() + timeout, work).await;
        match outcome {
            Err(error) if error.kind() == ErrorKind::Timeout => Err(last.unwrap_or(error)),
            outcome => outcome,
        }
    }

    pub(crate) async fn ping(&self, timeout: Duration) -> Result<Pong, Error> {
        if self.store.is_immediate() {
            return self.store.ping().await;
        }
        within(TokioInstant::now() + timeout, self.store.ping()).await
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.store.close();
    }
}

/// The answer to a cost that can never pass: no store is asked, and no policy.
fn impossible(operation: Operation, entry: &Entry<'_>) -> Option<Decision> {
    let too_much = |limit: &Limit| entry.amount > limit.capacity();
    if operation != Operation::Check || !entry.limits.iter().any(too_much) {
        return None;
    }
    let untouched = entry.limits.iter().map(|limit| LimitDecision {
        retry_after: if too_much(limit) { None } else { Some(Duration::ZERO) },
        ..full(limit)
    });
    Some(Decision::of(untouched.collect(), false, Source::Limit))
}

fn open(entry: &Entry<'_>) -> Decision {
    Decision::of(entry.limits.iter().map(full).collect(), true, Source::Open)
}

fn closed(entry: &Entry<'_>, next_try: Duration) -> Decision {
    let limits =
        entry.limits.iter().map(|limit| LimitDecision { remaining: 0, retry_after: Some(next_try), ..full(limit) });
    let mut decision = Decision::of(limits.collect(), false, Source::Closed);
    // No Limit denied; the policy did.
    decision.denied_by = None;
    decision
}

/// A Limit of which nothing is used up.
fn full(limit: &Limit) -> LimitDecision {
    LimitDecision {
        limit: limit.capacity(),
        remaining: limit.capacity(),
        retry_after: Some(Duration::ZERO),
        ..LimitDecision::default()
    }
}
