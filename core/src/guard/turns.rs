//! Who waits for which key, in order of arrival.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Semaphore, SemaphorePermit};

use crate::error::{Error, ErrorKind};
use crate::limit::Limits;

/// How many callers may be waiting at once; each costs some hundred bytes.
const MOST_WAITING: usize = 100_000;

/// Limiter, Limits and key: other Limits mean another wait.
type Name = (Arc<str>, Arc<Limits>, Box<[u8]>);

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
    /// How many are here. Changes only under the lock of the map.
    places: AtomicUsize,
    /// The most that one of them has wanted.
    largest_cost: AtomicU64,
    /// When the one with the turn may pass, in microseconds since the epoch by the client's clock.
    passes_at: Mutex<Option<u64>>,
    /// Turns that were given out of order and are not to be given again.
    extra_turns: AtomicUsize,
}

impl Queue {
    fn new() -> Self {
        Self {
            turn: Semaphore::new(1),
            places: AtomicUsize::new(0),
            largest_cost: AtomicU64::new(1),
            passes_at: Mutex::new(None),
            extra_turns: AtomicUsize::new(0),
        }
    }

    /// Whether a turn was given out of order, which now is no more.
    fn take_extra_turn(&self) -> bool {
        let less = |turns: usize| turns.checked_sub(1);
        self.extra_turns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }

    fn passes_at(&self) -> MutexGuard<'_, Option<u64>> {
        self.passes_at.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place in line. Given up when dropped.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    turns: &'a Turns,
    name: Name,
    queue: Arc<Queue>,
}

impl Turns {
    pub(super) fn enter(
        &self,
        limiter: &Arc<str>,
        limits: &Arc<Limits>,
        key: &[u8],
        cost: u64,
    ) -> Result<Place<'_>, Error> {
        let name: Name = (Arc::clone(limiter), Arc::clone(limits), key.into());
        let mut queues = self.lock();
        if queues.waiting >= MOST_WAITING {
            let message =
                format!("{MOST_WAITING} callers are waiting already; deny instead of waiting, or wait for less long");
            return Err(Error::new(ErrorKind::Unavailable, message));
        }
        queues.waiting += 1;
        let queue = Arc::clone(queues.by_name.entry(name.clone()).or_insert_with(|| Arc::new(Queue::new())));
        queue.places.fetch_add(1, Ordering::Relaxed);
        queue.largest_cost.fetch_max(cost, Ordering::Relaxed);
        Ok(Place { turns: self, name, queue })
    }

    fn lock(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place<'_> {
    /// When the one with the turn may pass, if it is waiting for that.
    pub(crate) fn passes_at(&self) -> Option<u64> {
        *self.queue.passes_at()
    }

    /// Ends when all who came before are gone.
    pub(crate) async fn turn(&self) -> Result<Turn<'_>, Error> {
        let closed = |_| Error::new(ErrorKind::Internal, "a queue of waiting callers was closed");
        let permit = self.queue.turn.acquire().await.map_err(closed)?;
        Ok(Turn { queue: &self.queue, permit: Some(permit) })
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut queues = self.turns.lock();
        queues.waiting -= 1;
        if self.queue.places.fetch_sub(1, Ordering::Relaxed) == 1 {
            queues.by_name.remove(&self.name);
        }
    }
}

/// The turn of the one who is first in line. Passed on when dropped.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    queue: &'a Queue,
    permit: Option<SemaphorePermit<'a>>,
}

impl Turn<'_> {
    /// Tells those behind how long this one waits. Turns that were given out of order and not taken yet are taken back.
    pub(crate) fn tell(&self, passes_at: u64) {
        *self.queue.passes_at() = Some(passes_at);
        while let Ok(permit) = self.queue.turn.try_acquire() {
            if !self.queue.take_extra_turn() {
                break;
            }
            permit.forget();
        }
    }

    /// Gives turns to those for whom `tokens` are enough, whatever they want: they need not wait for each other.
    pub(crate) fn let_go(&self, tokens: u64) {
        if self.queue.extra_turns.load(Ordering::Relaxed) > 0 {
            return;
        }
        let others = tokens / self.queue.largest_cost.load(Ordering::Relaxed);
        let in_line = self.queue.places.load(Ordering::Relaxed).saturating_sub(1);
        let others = usize::try_from(others).unwrap_or(usize::MAX).min(in_line);
        self.queue.extra_turns.fetch_add(others, Ordering::Relaxed);
        self.queue.turn.add_permits(others);
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *self.queue.passes_at() = None;
        if self.queue.take_extra_turn()
            && let Some(permit) = self.permit.take()
        {
            permit.forget();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_of_a_queue_that_all_have_left() {
        let turns = Turns::default();
        let (limiter, limits): (Arc<str>, _) = ("api".into(), Arc::new("1/s".parse::<Limits>().unwrap()));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for number in 0..20_000_u32 {
                        drop(turns.enter(&limiter, &limits, &number.to_le_bytes(), 1).unwrap());
                    }
                });
            }
        });
        let queues = turns.lock();
        assert_eq!((queues.waiting, queues.by_name.len()), (0, 0));
    }
}
