//! What stands between a limiter and its store: the deadline, and who answers when the store does not.

mod deadline;
mod deny_cache;
mod fallback;
mod immediate;
mod learnt_clock;
mod options;
mod turns;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::time::{Instant as TokioInstant, timeout_at};

use self::deadline::{check_runtime, within};
pub(crate) use self::deadline::{first, no_runtime};
pub(crate) use self::deny_cache::DenyCache;
pub(crate) use self::fallback::{Fallback, Share};
pub(crate) use self::immediate::AtOnce;
pub use self::options::FailurePolicy;
pub(crate) use self::options::{Options, check_deny_cache_max, check_share, check_timeout};
use self::turns::Turns;
pub(crate) use self::turns::{Place, Turn};
use crate::clock::Clock;
use crate::decision::{Decision, LimitDecision, Source};
use crate::error::{self, Error, ErrorKind, late};
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
    deny_cache: DenyCache,
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
    pub(crate) fn new(store: AnyStore, fallback: Fallback, deny_cache: DenyCache, clock: Arc<dyn Clock>) -> Self {
        Self {
            store,
            fallback,
            deny_cache,
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
        if self.clock.needs_runtime() {
            check_runtime()?;
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
        let _forgetting = self.forgetting(options, Operation::Refund, entry);
        self.ask(options, Operation::Refund, entry, Instant::now()).await.map(drop)
    }

    pub(crate) fn stats(&self) -> Stats {
        let mut stats = self.counters.read(self.store.reloads());
        stats.decisions += self.store.decisions();
        stats
    }

    /// Decides one entry of which nothing can be said at once: by the store, else by the policy.
    pub(crate) async fn decide_one(
        &self,
        options: &Options,
        operation: Operation,
        entry: &Entry<'_>,
        asked: Instant,
    ) -> Result<Decision, Error> {
        self.counters.add_decisions(1);
        let _forgetting = self.forgetting(options, operation, entry);
        match self.ask(options, operation, entry, asked).await {
            Ok(told) => Ok(self.accept(operation, entry, &told, Some(asked))),
            Err(error) => self.degrade(options, operation, entry, error),
        }
    }

    async fn ask(
        &self,
        options: &Options,
        operation: Operation,
        entry: &Entry<'_>,
        asked: Instant,
    ) -> Result<Told, Error> {
        let terms = Terms { operation, now: None, asked, deadline: TokioInstant::from_std(asked) + options.timeout };
        check_runtime()?;
        let asked = self.store.ask(terms, entry)?;
        timeout_at(terms.deadline, asked.told()).await.unwrap_or_else(|_| Err(late()))
    }

    /// The same for many entries, in order: each is answered by whatever can decide it.
    pub(crate) async fn decide(
        &self,
        options: &Options,
        operation: Operation,
        entries: &[Entry<'_>],
        now: Option<u64>,
    ) -> Result<Vec<Decision>, Error> {
        if let AnyStore::Memory(store) = &self.store {
            let decide = |entry| self.decide_in_memory(store, operation, entry, now);
            return Ok(entries.iter().map(decide).collect());
        }
        self.counters.add_decisions(entries.len());
        let asked = Instant::now();
        let locally = |entry| match now {
            Some(_) => impossible(operation, entry),
            None => self.locally(operation, entry, asked),
        };
        let mut decisions: Vec<Option<Decision>> = entries.iter().map(locally).collect();
        let open: Vec<usize> = (0..entries.len()).filter(|place| decisions[*place].is_none()).collect();
        let left: Vec<Entry<'_>> = open.iter().map(|place| entries[*place]).collect();
        let _forgetting: Vec<_> = left.iter().map(|entry| self.forgetting(options, operation, entry)).collect();
        let terms = Terms { operation, now, asked, deadline: TokioInstant::from_std(asked) + options.timeout };
        let outcomes = within(terms.deadline, async { Ok(self.store.decide(terms, &left).await) }).await;
        let outcomes = outcomes.unwrap_or_else(|error| vec![Err(error); left.len()]);
        for ((place, entry), outcome) in open.into_iter().zip(&left).zip(outcomes) {
            decisions[place] = Some(match outcome {
                Ok(told) => self.accept(operation, entry, &told, now.is_none().then_some(asked)),
                Err(error) => self.degrade(options, operation, entry, error)?,
            });
        }
        let undecided = || Error::new(ErrorKind::Internal, "a key was left undecided");
        decisions.into_iter().collect::<Option<_>>().ok_or_else(undecided)
    }

    /// Forgets what denials have told of a key as soon as something was given back to it, or may have been.
    fn forgetting<'a>(
        &'a self,
        options: &Options,
        operation: Operation,
        entry: &'a Entry<'a>,
    ) -> Option<Forgetting<'a>> {
        let gives_back = matches!(operation, Operation::Refund | Operation::Reset) && self.deny_cache.is_on();
        gives_back.then(|| Forgetting { deny_cache: &self.deny_cache, entry, timeout: options.timeout })
    }

    /// What the store has told. `asked` is when, unless that was about another time than the present.
    fn accept(&self, operation: Operation, entry: &Entry<'_>, told: &Told, asked: Option<Instant>) -> Decision {
        if told.healed > 0 {
            self.counters.add_healed(told.healed);
        }
        if let Some(asked) = asked {
            if let Some(time) = told.now {
                self.fallback.learn_time(time);
            }
            if operation == Operation::Check && !told.answer.allowed && self.deny_cache.is_on() {
                self.deny_cache.remember(entry, &told.answer, asked);
            }
        }
        if self.failing.load(Ordering::Relaxed) && self.failing.swap(false, Ordering::Relaxed) {
            tracing::info!("the store decides again");
        }
        told.answer.decision(entry.limits, operation.judged_cost(entry.amount))
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

/// Forgets what denials have told of a key when it is dropped, however the call ends that gives something back.
struct Forgetting<'a> {
    deny_cache: &'a DenyCache,
    entry: &'a Entry<'a>,
    timeout: Duration,
}

impl Drop for Forgetting<'_> {
    fn drop(&mut self) {
        self.deny_cache.forget(self.entry, self.timeout);
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.store.close();
    }
}

/// The answer to a cost that can never pass: no store is asked, and no policy.
#[inline]
fn impossible(operation: Operation, entry: &Entry<'_>) -> Option<Decision> {
    let too_much = |limit: &Limit| entry.amount > limit.capacity();
    (operation == Operation::Check && entry.limits.iter().any(too_much)).then(|| never(entry))
}

#[cold]
fn never(entry: &Entry<'_>) -> Decision {
    let too_much = |limit: &Limit| entry.amount > limit.capacity();
    let untouched = entry.limits.iter().map(|limit| LimitDecision {
        retry_after: if too_much(limit) { None } else { Some(Duration::ZERO) },
        ..full(limit)
    });
    Decision::of(untouched, false, Source::Limit)
}

fn open(entry: &Entry<'_>) -> Decision {
    Decision::of(entry.limits.iter().map(full), true, Source::Open)
}

fn closed(entry: &Entry<'_>, next_try: Duration) -> Decision {
    let limits =
        entry.limits.iter().map(|limit| LimitDecision { remaining: 0, retry_after: Some(next_try), ..full(limit) });
    let mut decision = Decision::of(limits, false, Source::Closed);
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
