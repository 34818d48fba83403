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
pub(crate) struct Turns {
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
pub(super) struct Denial {
    pub(super) decision: Decision,
    /// The client's time from which on the call may pass, in microseconds since the epoch.
    pub(super) passes_at: u64,
}

/// A place in line. Given up when dropped.
#[derive(Debug)]
pub(super) struct Place<'a> {
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
    pub(super) async fn turn(&self) -> Result<SemaphorePermit<'_>, Error> {
        self.queue
            .turn
            .acquire()
            .await
            .map_err(|_| Error::new(ErrorKind::Internal, "a queue of waiting callers was closed"))
    }

    /// What the one with the turn was last told.
    pub(super) fn denial(&self) -> Option<Denial> {
        self.lock_denial().clone()
    }

    pub(super) fn set_denial(&self, denial: Option<Denial>) {
        *self.lock_denial() = denial;
    }

    fn lock_denial(&self) -> MutexGuard<'_, Option<Denial>> {
        self.queue.denial.lock().unwrap_or_else(PoisonError::into_inner)
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
