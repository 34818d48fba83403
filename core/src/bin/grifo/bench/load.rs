//! Callers that ask again as soon as they have their answer.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use grifo::{Error, Limiter};
use tokio::task::JoinSet;

use super::histogram::Histogram;
use crate::failure::Failure;
use crate::interrupt::interrupted;
use crate::terminal::progress;

/// Every so manyth call is timed; then others have a turn, since the embedded store never waits.
const TIMED: usize = 8;
/// How often the bar moves.
const TICK: Duration = Duration::from_millis(100);
/// Callers that remove keys, and when they give up.
const CLEANERS: usize = 64;
const CLEANUP: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct Load {
    limiter: Limiter,
    keys: Vec<String>,
    /// The keys that may have left something in the store.
    touched: Vec<AtomicBool>,
    latencies: Histogram,
    stopped: AtomicBool,
}

/// What was seen, by all callers together.
#[derive(Debug)]
pub(super) struct Measured {
    pub(super) seconds: f64,
    pub(super) tally: Tally,
    pub(super) p50: Duration,
    pub(super) p99: Duration,
    pub(super) p999: Duration,
}

#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) allowed: u64,
    pub(super) denied: u64,
    /// Calls that the store did not decide, by the reason.
    pub(super) degraded: BTreeMap<&'static str, u64>,
}

impl Load {
    pub(super) fn new(limiter: Limiter, keys: usize) -> Self {
        Self {
            limiter,
            keys: (0..keys).map(|number| number.to_string()).collect(),
            touched: (0..keys).map(|_| AtomicBool::new(false)).collect(),
            latencies: Histogram::new(),
            stopped: AtomicBool::new(false),
        }
    }

    pub(super) async fn run(self: &Arc<Self>, callers: usize, time: Duration) -> Result<Measured, Failure> {
        let start = Instant::now();
        let mut tasks = JoinSet::new();
        for _ in 0..callers {
            tasks.spawn(Arc::clone(self).call());
        }
        let waited = self.wait(&mut tasks, time).await;
        self.stopped.store(true, Ordering::Relaxed);
        let mut tally = Tally::default();
        while let Some(done) = tasks.join_next().await {
            tally.add(done.map_err(|error| Failure::Usage(format!("a caller ended: {error}")))??);
        }
        waited?;
        let seconds = start.elapsed().as_secs_f64();
        let [p50, p99, p999] = [0.5, 0.99, 0.999].map(|part| self.latencies.quantile(part));
        Ok(Measured { seconds, tally, p50, p99, p999 })
    }

    /// Waits for the end of the time, of the user's patience, or of a caller, which ends only with an error.
    async fn wait(&self, tasks: &mut JoinSet<Result<Tally, Error>>, time: Duration) -> Result<(), Failure> {
        let bar = progress("measuring", Some(time.as_secs_f64().ceil() as u64), false);
        let start = Instant::now();
        let mut interrupt = pin!(interrupted());
        while start.elapsed() < time {
            tokio::select! {
                () = tokio::time::sleep(TICK.min(time - start.elapsed().min(time))) => bar.set_position(start.elapsed().as_secs()),
                () = &mut interrupt => return Err(Failure::Interrupted),
                Some(Ok(Err(error))) = tasks.join_next() => return Err(error.into()),
            }
        }
        bar.finish_and_clear();
        Ok(())
    }

    async fn call(self: Arc<Self>) -> Result<Tally, Error> {
        let mut tally = Tally::default();
        while !self.stopped.load(Ordering::Relaxed) {
            let start = Instant::now();
            self.call_once(&mut tally).await?;
            self.latencies.add(start.elapsed());
            for _ in 1..TIMED {
                if self.stopped.load(Ordering::Relaxed) {
                    break;
                }
                self.call_once(&mut tally).await?;
            }
            tokio::task::yield_now().await;
        }
        Ok(tally)
    }

    async fn call_once(&self, tally: &mut Tally) -> Result<(), Error> {
        let key = fastrand::usize(..self.keys.len());
        self.touched[key].store(true, Ordering::Relaxed);
        let decision = self.limiter.check(&self.keys[key]).await?;
        match decision.reason.filter(|_| decision.degraded()) {
            Some(reason) => *tally.degraded.entry(reason.name()).or_default() += 1,
            None if decision.allowed => tally.allowed += 1,
            None => tally.denied += 1,
        }
        Ok(())
    }

    /// Removes from the store what the callers left there.
    pub(super) async fn clean_up(self: &Arc<Self>, limiter: &Limiter) -> Result<(), Failure> {
        let mut tasks = JoinSet::new();
        for cleaner in 0..CLEANERS {
            tasks.spawn(Arc::clone(self).reset(limiter.clone(), cleaner));
        }
        let all_done = async {
            while let Some(done) = tasks.join_next().await {
                done.map_err(|error| Failure::Usage(format!("a cleaner ended: {error}")))??;
            }
            Ok(())
        };
        tokio::select! {
            done = tokio::time::timeout(CLEANUP, all_done) => done.unwrap_or(Err(Failure::Interrupted)),
            () = interrupted() => Err(Failure::Interrupted),
        }
    }

    async fn reset(self: Arc<Self>, limiter: Limiter, cleaner: usize) -> Result<(), Error> {
        let own = self.keys.iter().zip(&self.touched).skip(cleaner).step_by(CLEANERS);
        for (key, _) in own.filter(|(_, touched)| touched.load(Ordering::Relaxed)) {
            let _ = limiter.reset(key).await?;
        }
        Ok(())
    }
}

impl Tally {
    fn add(&mut self, other: Self) {
        self.allowed += other.allowed;
        self.denied += other.denied;
        for (reason, count) in other.degraded {
            *self.degraded.entry(reason).or_default() += count;
        }
    }

    pub(super) fn degraded(&self) -> u64 {
        self.degraded.values().sum()
    }

    pub(super) fn total(&self) -> u64 {
        self.allowed + self.denied + self.degraded()
    }

    /// What part of all calls so many are.
    pub(super) fn share(&self, count: u64) -> f64 {
        count as f64 / self.total().max(1) as f64
    }
}
