//! What stands between a limiter and its store: the deadline, and who answers when the store does not.

mod deadline;
mod fallback;
mod learnt_clock;
mod options;
mod turns;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use futures_util::stream;
use futures_util::{FutureExt, StreamExt};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::Instant as TokioInstant;

pub(crate) use self::deadline::{first, no_runtime};
use self::deadline::{late, within};
pub(crate) use self::fallback::{Fallback, Share};
pub use self::options::FailurePolicy;
pub(crate) use self::options::{Options, check_share, check_timeout};
use self::turns::Turns;
pub(crate) use self::turns::{Place, Turn};
use crate::clock::Clock;
use crate::decision::{Decision, LimitDecision, Source};
use crate::error::{Error, ErrorKind};
use crate::limit::{Limit, Limits};
use crate::stats::{Counters, Stats};
use crate::store::{Answers, AnyStore, Entry, Operation, Pong, Store};

/// The pause between two attempts to make the store ready.
const CONNECT_PAUSE: Duration = Duration::from_millis(20);
/// How many calls of one lane may be waiting for their answers.
const CALLS_IN_FLIGHT: usize = 4;
/// Two lines in the log about trouble are no closer together, in microseconds.
const LOG_PAUSE: u64 = 10_000_000;
/// When a store that is out of reach is tried again, where nothing better is known.
const NEXT_TRY: Duration = Duration::from_millis(100);

/// Entries that may share a call, and their places among all.
struct Lane<'a> {
    places: Vec<usize>,
    entries: Vec<Entry<'a>>,
}

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
            return Err(Error::new(ErrorKind::Closed, "the client was closed; make another"));
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
        let deadline = TokioInstant::now() + options.timeout;
        within(Some(deadline), self.store.call(Operation::Refund, std::slice::from_ref(entry), None)).await.map(drop)
    }

    pub(crate) fn stats(&self) -> Stats {
        self.counters.read(self.store.reloads())
    }

    /// Decides every entry: from the Limits alone where a cost can never pass, else by the store, else by the policy.
    pub(crate) async fn decide(
        &self,
        options: &Options,
        operation: Operation,
        entries: &[Entry<'_>],
        now: Option<u64>,
    ) -> Result<Vec<Decision>, Error> {
        self.counters.add_decisions(entries.len());
        let deadline = (!self.store.is_immediate()).then(|| TokioInstant::now() + options.timeout);
        let mut decisions: Vec<Option<Decision>> = entries.iter().map(|entry| impossible(operation, entry)).collect();
        let lanes = self.lanes(entries, &decisions);
        // A node that hangs holds up its own lanes alone.
        let decided =
            join_all(lanes.iter().map(|lane| self.decide_lane(options, operation, &lane.entries, now, deadline)));
        for (lane, decided) in lanes.iter().zip(decided.await) {
            for (place, decision) in lane.places.iter().zip(decided?) {
                decisions[*place] = Some(decision);
            }
        }
        let undecided = || Error::new(ErrorKind::Internal, "a key was left undecided");
        decisions.into_iter().collect::<Option<_>>().ok_or_else(undecided)
    }

    /// The entries that are not decided yet, by the lane that each must take.
    fn lanes<'a>(&self, entries: &[Entry<'a>], decisions: &[Option<Decision>]) -> Vec<Lane<'a>> {
        let mut lanes: Vec<Lane<'a>> = Vec::new();
        let mut by_number = HashMap::new();
        for (place, entry) in entries.iter().enumerate().filter(|(place, _)| decisions[*place].is_none()) {
            let index = *by_number.entry(self.store.lane(entry.key)).or_insert(lanes.len());
            if index == lanes.len() {
                lanes.push(Lane { places: Vec::new(), entries: Vec::new() });
            }
            lanes[index].places.push(place);
            lanes[index].entries.push(*entry);
        }
        lanes
    }

    /// Decides the entries of one lane, in as many calls as they take.
    async fn decide_lane(
        &self,
        options: &Options,
        operation: Operation,
        entries: &[Entry<'_>],
        now: Option<u64>,
        deadline: Option<TokioInstant>,
    ) -> Result<Vec<Decision>, Error> {
        let parts = entries.chunks(self.store.entries_per_call());
        let calls: Vec<_> = parts.clone().map(|part| self.call(operation, part, now, deadline).boxed()).collect();
        // Sent in order, and so decided in order, without waiting for the answers of those before.
        let answers: Vec<_> = stream::iter(calls).buffered(CALLS_IN_FLIGHT).collect().await;
        let mut decisions = Vec::with_capacity(entries.len());
        for (part, answers) in parts.zip(answers) {
            match answers {
                Ok(answers) => decisions.extend(self.accept(operation, part, &answers, now)),
                Err(error) => decisions.extend(self.degrade(options, operation, part, error)?),
            }
        }
        Ok(decisions)
    }

    async fn call(
        &self,
        operation: Operation,
        entries: &[Entry<'_>],
        now: Option<u64>,
        deadline: Option<TokioInstant>,
    ) -> Result<Answers, Error> {
        if deadline.is_some_and(|deadline| deadline <= TokioInstant::now()) {
            return Err(late());
        }
        within(deadline, self.store.call(operation, entries, now)).await
    }

    fn accept(
        &self,
        operation: Operation,
        entries: &[Entry<'_>],
        answers: &Answers,
        now: Option<u64>,
    ) -> Vec<Decision> {
        self.counters.add_healed(answers.healed);
        if now.is_none() {
            self.fallback.learn_time(answers.now);
        }
        if self.failing.load(Ordering::Relaxed) && self.failing.swap(false, Ordering::Relaxed) {
            tracing::info!("the store decides again");
        }
        let decide = |(entry, answer): (&Entry<'_>, &crate::store::Answer)| {
            answer.into_decision(entry.limits, operation.judged_cost(entry.amount))
        };
        entries.iter().zip(&answers.list).map(decide).collect()
    }

    /// Answers in the store's place.
    fn degrade(
        &self,
        options: &Options,
        operation: Operation,
        entries: &[Entry<'_>],
        error: Error,
    ) -> Result<Vec<Decision>, Error> {
        if !error.kind().is_of_the_store() {
            return Err(error);
        }
        self.counters.add_degraded(entries.len());
        self.log_trouble(options, &error);
        let answer = |entry: &Entry<'_>| match options.on_failure {
            FailurePolicy::Open => Ok(open(entry)),
            FailurePolicy::Closed => Ok(closed(entry, self.next_try())),
            FailurePolicy::Local => Ok(self.fallback.decide(options.share, operation, entry, self.next_try())),
            FailurePolicy::Raise => Err(error.clone()),
        };
        entries
            .iter()
            .map(|entry| answer(entry).map(|decision| Decision { reason: Some(error.kind()), ..decision }))
            .collect()
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
        let deadline = self.deadline(timeout);
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
        let outcome = within(deadline, work).await;
        match outcome {
            Err(error) if error.kind() == ErrorKind::Timeout => Err(last.unwrap_or(error)),
            outcome => outcome,
        }
    }

    pub(crate) async fn ping(&self, timeout: Duration) -> Result<Pong, Error> {
        within(self.deadline(timeout), self.store.ping()).await
    }

    fn deadline(&self, timeout: Duration) -> Option<TokioInstant> {
        (!self.store.is_immediate()).then(|| TokioInstant::now() + timeout)
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
