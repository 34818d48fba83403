//! What one of those who take part has counted so far.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

#[derive(Debug, Default)]
pub(crate) struct Tally {
    admitted: AtomicU64,
    denied: AtomicU64,
    ready: AtomicBool,
    stopped: AtomicBool,
    trouble: Mutex<Option<String>>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) admitted: u64,
    pub(crate) denied: u64,
}

impl Tally {
    pub(crate) fn add(&self, admitted: bool) {
        let counter = if admitted { &self.admitted } else { &self.denied };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn set(&self, count: Count) {
        self.admitted.store(count.admitted, Ordering::Relaxed);
        self.denied.store(count.denied, Ordering::Relaxed);
    }

    pub(crate) fn count(&self) -> Count {
        Count { admitted: self.admitted.load(Ordering::Relaxed), denied: self.denied.load(Ordering::Relaxed) }
    }

    pub(crate) fn set_ready(&self) {
        self.ready.store(true, Ordering::Release);
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Acquire)
    }

    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// The first trouble is kept: what follows follows from it.
    pub(crate) fn set_trouble(&self, message: String) {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(message);
    }

    pub(crate) fn trouble(&self) -> Option<String> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
