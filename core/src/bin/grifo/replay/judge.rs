//! Decides about every request of a log at the log's own time.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use grifo::testing::{Operation, decide_at};
use grifo::{Error, Limiter};
use indicatif::ProgressBar;
use tokio::task::JoinSet;

use super::log::{Log, Record};
use super::tally::Tally;
use super::timeline::Timeline;
use crate::failure::Failure;
use crate::interrupt::interrupted;
use crate::terminal::progress;

/// Keys are independent, so each worker takes its part of them, and none waits for another's round trip.
const WORKERS: usize = 8;
/// How many requests go into one call at most.
const BATCH: usize = 256;
/// When whoever cleans up stops waiting for the store.
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(5);

/// A replay under way.
#[derive(Debug)]
pub(super) struct Judge {
    log: Log,
    limiters: Vec<Limiter>,
    timeline: Timeline,
    tallies: Mutex<Vec<Tally>>,
    /// The keys that may have left something in the store.
    touched: Vec<AtomicBool>,
    stopped: AtomicBool,
    bar: ProgressBar,
}

impl Judge {
    pub(super) fn new(log: Log, limiters: Vec<Limiter>) -> Self {
        let timeline = Timeline::covering(log.span());
        Self {
            timeline,
            tallies: Mutex::new(vec![Tally::new(&timeline, log.keys.len()); limiters.len()]),
            touched: log.keys.iter().map(|_| AtomicBool::new(false)).collect(),
            stopped: AtomicBool::new(false),
            bar: progress("judging", Some(log.records.len() as u64), false),
            log,
            limiters,
        }
    }

    /// Judges the whole log. Ended early, it still waits for what is under way.
    pub(super) async fn run(self: &Arc<Self>) -> Result<(), Failure> {
        let mut workers = JoinSet::new();
        for worker in 0..WORKERS {
            workers.spawn(Arc::clone(self).work(worker));
        }
        let mut outcome = Ok(());
        let mut interrupt = pin!(interrupted());
        loop {
            tokio::select! {
                done = workers.join_next() => match done {
                    None => break,
                    Some(Ok(Ok(()))) => {}
                    Some(Ok(Err(error))) => outcome = self.stop(outcome, error.into()),
                    Some(Err(error)) => outcome = self.stop(outcome, Failure::Usage(format!("a worker ended: {error}"))),
                },
                () = &mut interrupt, if !self.is_stopped() => outcome = self.stop(outcome, Failure::Interrupted),
            }
        }
        self.bar.finish_and_clear();
        outcome
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// Keeps the first of several failures.
    fn stop(&self, outcome: Result<(), Failure>, failure: Failure) -> Result<(), Failure> {
        self.stopped.store(true, Ordering::Relaxed);
        outcome.and(Err(failure))
    }

    /// Judges the keys of one worker, in the order of the log, all of the same time together.
    async fn work(self: Arc<Self>, worker: usize) -> Result<(), Error> {
        let mut batch: Vec<Record> = Vec::new();
        for record in self.log.records.iter().filter(|record| record.key % WORKERS == worker) {
            if batch.len() == BATCH || batch.first().is_some_and(|first| first.seconds != record.seconds) {
                self.decide(&batch).await?;
                batch.clear();
            }
            if self.is_stopped() {
                return Ok(());
            }
            batch.push(*record);
        }
        self.decide(&batch).await
    }

    async fn decide(&self, batch: &[Record]) -> Result<(), Error> {
        let Some(first) = batch.first() else { return Ok(()) };
        let mut entries = Vec::with_capacity(batch.len() * self.limiters.len());
        for record in batch {
            self.touched[record.key].store(true, Ordering::Relaxed);
            entries.extend(self.limiters.iter().map(|limiter| (limiter, &*self.log.keys[record.key], 1)));
        }
        let decisions = decide_at(Operation::Check, Duration::from_secs(first.seconds), &entries).await?;
        let mut tallies = self.tallies.lock().unwrap_or_else(PoisonError::into_inner);
        for (record, decisions) in batch.iter().zip(decisions.chunks(self.limiters.len())) {
            for (tally, decision) in tallies.iter_mut().zip(decisions) {
                tally.add(*record, &self.timeline, decision.allowed);
            }
        }
        self.bar.inc(batch.len() as u64);
        Ok(())
    }

    /// Removes from the store what the replay left there.
    pub(super) async fn clean_up(&self) -> Result<(), Failure> {
        let limiters: Vec<Limiter> =
            self.limiters.iter().map(|limiter| limiter.clone().timeout(CLEANUP_TIMEOUT)).collect::<Result<_, _>>()?;
        let (_, now) = self.log.span().unwrap_or_default();
        let touched: Vec<&[u8]> = self
            .log
            .keys
            .iter()
            .zip(&self.touched)
            .filter(|(_, touched)| touched.load(Ordering::Relaxed))
            .map(|(key, _)| &**key)
            .collect();
        let bar = progress("cleaning up", Some(touched.len() as u64), false);
        let mut interrupt = pin!(interrupted());
        for keys in touched.chunks(BATCH) {
            let entries: Vec<_> =
                keys.iter().flat_map(|key| limiters.iter().map(move |limiter| (limiter, *key, 0))).collect();
            tokio::select! {
                done = decide_at(Operation::Reset, Duration::from_secs(now), &entries) => drop(done?),
                () = &mut interrupt => return Err(Failure::Interrupted),
            }
            bar.inc(keys.len() as u64);
        }
        bar.finish_and_clear();
        Ok(())
    }

    pub(super) const fn log(&self) -> &Log {
        &self.log
    }

    pub(super) const fn timeline(&self) -> &Timeline {
        &self.timeline
    }

    /// Each limiter's Limits as text, and what came of it.
    pub(super) fn results(&self) -> Vec<(String, Tally)> {
        let tallies = self.tallies.lock().unwrap_or_else(PoisonError::into_inner);
        let limits = self.limiters.iter().map(|limiter| limiter.limits().to_string());
        limits.zip(tallies.iter().cloned()).collect()
    }
}
