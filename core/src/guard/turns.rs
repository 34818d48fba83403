//! Who waits for which key, in order of arrival.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Semaphore, SemaphorePermit};

use crate::decision::Decision;
use crate::error::{Error, ErrorKind};

/// How many callers may wait at once; each costs some hundred bytes.
const MOST_WAITING: usize = 100_000;

type Name = (Arc<str>, Box<[u8]>);

/// The queues of a client: one for each key that somebody waits for.
#[derive(Debug, Default)]
pub(super) struct Turns {
    queues: Mutex<Queues>,
}

#[derive(Debug, Default)]
struct Queues {
    by_name: HashMap<Name, Arc<Queue>>,
    waiting: usize,
}

/// Those who wait for one key: one at a time has the turn, the others are in line.
#[derive(Debug)]
struct Queue {
    turn: Semaphore,
    denial: Mutex<Option<Denial>>,
}

/// What the one with the turn was last told.
#[derive(Debug, Clone)]
pub(crate) struct Denial {
    pub(crate) decision: Decision,
    /// The client's time from which on the call may pass, in microseconds since the epoch.
    pub(crate) passes_at: u64,
}

/// A place in line. Given up when dropped.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    turns: &'a Turns,
    name: Name,
    queue: Arc<Queue>,
}

impl Turns {
    pub(super) fn enter(&self, limiter: &Arc<str>, key: &[u8]) -> Result<Place<'_>, Error> {
        let name: Name = (Arc::clone(limiter), key.into());
        let mut queues = self.lock();
        if queues.waiting >= MOST_WAITING {
            let message =
                format!("{MOST_WAITING} callers are waiting already; deny instead of waiting, or wait for less long");
            return Err(Error::new(ErrorKind::Unavailable, message));
        }
        queues.waiting += 1;
        let fresh = || Arc::new(Queue { turn: Semaphore::new(1), denial: Mutex::new(None) });
        let queue = Arc::clone(queues.by_name.entry(name.clone()).or_insert_with(fresh));
        Ok(Place { turns: self, name, queue })
    }

    fn lock(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place<'_> {
    /// Ends when all who came before are gone.
    pub(crate) async fn turn(&self) -> Result<Turn<'_>, Error> {
        let closed = |_| Error::new(ErrorKind::Internal, "a queue of waiting callers was closed");
        let permit = self.queue.turn.acquire().await.map_err(closed)?;
        Ok(Turn { queue: &self.queue, _permit: permit })
    }

    /// What the one with the turn was last told.
    pub(crate) fn denial(&self) -> Option<Denial> {
        self.queue.denial().clone()
    }
}

impl Queue {
    fn denial(&self) -> MutexGuard<'_, Option<Denial>> {
        self.denial.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The turn of the one who is first in line. Passed on when dropped.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    queue: &'a Queue,
    _permit: SemaphorePermit<'a>,
}

impl Turn<'_> {
    /// Tells those behind what this one was told.
    pub(crate) fn tell(&self, denial: Denial) {
        *self.queue.denial() = Some(denial);
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *self.queue.denial() = None;
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut queues = self.turns.lock();
        queues.waiting -= 1;
        // The map's and this one: nobody else is in line.
        if Arc::strong_count(&self.queue) == 2 {
            queues.by_name.remove(&self.name);
        }
    }
}
