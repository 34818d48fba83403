//! What one of those who take part has counted so far.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use crate::served::Served;

#[derive(Debug, Default)]
pub(crate) struct Tally {
    admitted: AtomicU64,
    denied: AtomicU64,
    served: Mutex<Served>,
    idle: AtomicBool,
    stopped: AtomicBool,
    trouble: Mutex<Option<String>>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Count {
    pub(crate) admitted: u64,
    pub(crate) denied: u64,
}

impl Tally {
    pub(crate) fn add(&self, admitted: bool) {
        let counter = if admitted { &self.admitted } else { &self.denied };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn set_count(&self, count: Count) {
        self.admitted.store(count.admitted, Ordering::Relaxed);
        self.denied.store(count.denied, Ordering::Relaxed);
    }

    pub(crate) fn count(&self) -> Count {
        Count { admitted: self.admitted.load(Ordering::Relaxed), denied: self.denied.load(Ordering::Relaxed) }
    }

    pub(crate) fn served(&self) -> MutexGuard<'_, Served> {
        lock(&self.served)
    }

    /// Whether it waits for an order.
    pub(crate) fn set_idle(&self, idle: bool) {
        self.idle.store(idle, Ordering::Release);
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.idle.load(Ordering::Acquire)
    }

    pub(crate) fn set_stopped(&self, stopped: bool) {
        self.stopped.store(stopped, Ordering::Release);
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// The first trouble is kept: what follows follows from it.
    pub(crate) fn set_trouble(&self, message: String) {
        lock(&self.trouble).get_or_insert(message);
    }

    pub(crate) fn trouble(&self) -> Option<String> {
        lock(&self.trouble).clone()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
