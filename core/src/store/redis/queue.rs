//! The decisions that are under way to one node, and those that wait for it.
//!
//! There are never more than a few flights, each with a deadline: that of the last of its callers. One that is long past it runs
//! on a runtime that nobody drives any more, and no longer counts.

use std::future::Future;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::batch::{Batches, Demand, Group};
use crate::error::{Error, ErrorKind, closed, late};
use crate::key::StoredKeys;
use crate::store::Told;

/// How many writes to a node may be under way at once.
const MOST_FLIGHTS: usize = 2;
/// A flight that is so long past its deadline is lost.
const LOST_AFTER: Duration = Duration::from_secs(1);

pub(super) type Outcome = Result<Told, Error>;
pub(super) type Reply = oneshot::Sender<Outcome>;

/// The decisions that are under way to a node, and those that wait.
#[derive(Debug, Default)]
pub(super) struct Queue {
    state: Mutex<State<Reply>>,
    tasks: Mutex<JoinSet<()>>,
}

#[derive(Debug)]
pub(super) struct State<R> {
    batches: Batches<R>,
    flights: Vec<Flight>,
    /// The number of the last flight.
    last: u64,
    is_closed: bool,
}

/// The other end of a caller's wait.
pub(super) trait WaitsFor {
    /// Whether the caller went away.
    fn is_gone(&self) -> bool;
}

impl WaitsFor for Reply {
    fn is_gone(&self) -> bool {
        self.is_closed()
    }
}

#[derive(Debug)]
struct Flight {
    number: u64,
    until: Instant,
}

/// The promise of an outcome.
#[derive(Debug)]
pub(crate) struct Receipt {
    pub(super) outcome: oneshot::Receiver<Outcome>,
    pub(super) deadline: Instant,
}

impl Receipt {
    pub(crate) async fn outcome(self) -> Outcome {
        self.outcome.await.unwrap_or_else(|_| Err(missing(self.deadline)))
    }

    /// What has come by the deadline.
    pub(super) async fn outcome_in_time(self) -> Outcome {
        timeout_at(self.deadline, self.outcome()).await.unwrap_or_else(|_| Err(late()))
    }
}

/// Why nobody answers: whoever waits beyond the deadline is left behind.
pub(super) fn missing(deadline: Instant) -> Error {
    if Instant::now() >= deadline {
        return late();
    }
    Error::new(ErrorKind::Connection, "the call ended together with the runtime that it ran on")
}

impl Queue {
    pub(super) fn lock(&self) -> MutexGuard<'_, State<Reply>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a task that ends with the queue. Not to be called under the lock: a runtime that is about to end drops it at once.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task);
    }

    /// Ends all that is under way.
    pub(super) fn close(&self) {
        let replies = {
            let mut state = self.lock();
            state.is_closed = true;
            state.batches.drain()
        };
        replies.for_each(|reply| drop(reply.send(Err(closed()))));
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).abort_all();
    }
}

impl<R> Default for State<R> {
    fn default() -> Self {
        Self { batches: Batches::default(), flights: Vec::new(), last: 0, is_closed: false }
    }
}

impl<R: WaitsFor> State<R> {
    fn take_off(&mut self, until: Instant) -> u64 {
        self.last += 1;
        self.flights.push(Flight { number: self.last, until });
        self.last
    }

    /// Begins the flight of a caller alone, if nobody is under way or waits.
    pub(super) fn take_off_alone(&mut self, deadline: Instant) -> Option<u64> {
        let is_idle = self.flights.is_empty() && self.batches.is_empty() && !self.is_closed;
        is_idle.then(|| self.take_off(deadline))
    }

    /// Begins a flight of those who wait, if there may be one more.
    pub(super) fn take_off_for_waiting(&mut self, now: Instant) -> Option<u64> {
        if self.batches.is_empty() || self.is_closed {
            return None;
        }
        if self.flights.len() >= MOST_FLIGHTS {
            self.flights.retain(|flight| now < flight.until + LOST_AFTER);
        }
        (self.flights.len() < MOST_FLIGHTS).then(|| self.take_off(now))
    }

    pub(super) fn land(&mut self, number: u64) {
        self.flights.retain(|flight| flight.number != number);
    }

    /// Lets a caller share what others ask, who wait already.
    pub(super) fn join(&mut self, demand: &Demand<'_>, reply: R) -> Result<(), R> {
        if self.is_closed { Err(reply) } else { self.batches.join(demand, reply) }
    }

    pub(super) fn line_up(&mut self, demand: &Demand<'_>, keys: StoredKeys, reply: R) -> Result<(), Error> {
        if self.is_closed {
            return Err(closed());
        }
        let full = |_| Error::new(ErrorKind::Unavailable, "too many callers are waiting for the store already");
        self.batches.push(demand, keys, reply).map_err(full)
    }

    /// Who goes next on a flight, which lands when there is nobody.
    pub(super) fn board(&mut self, number: u64) -> Vec<Vec<Group<R>>> {
        let now = Instant::now();
        let Some(flight) = self.flights.iter_mut().find(|flight| flight.number == number) else { return Vec::new() };
        let groups = self.batches.take(|waiter| waiter.deadline <= now || waiter.reply.is_gone());
        match groups.iter().flatten().filter_map(Group::deadline).max() {
            Some(latest) => flight.until = latest,
            None => self.land(number),
        }
        groups
    }
}

#[cfg(test)]
mod tests;
