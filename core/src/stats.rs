//! What a client has counted.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of a client since it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Decisions given, by whichever source.
    pub decisions: u64,
    /// Of these, decisions that the failure policy gave or errors that it raised in the store's place.
    pub degraded: u64,
    /// Keys that were found broken in the store and were mended.
    pub healed: u64,
    /// Times that a script was sent whole, since the server did not have it.
    pub reloads: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    decisions: AtomicU64,
    degraded: AtomicU64,
    healed: AtomicU64,
}

impl Counters {
    pub(crate) fn add_decisions(&self, count: usize) {
        self.decisions.fetch_add(count as u64, Ordering::Relaxed);
    }

    pub(crate) fn add_degraded(&self, count: usize) {
        self.degraded.fetch_add(count as u64, Ordering::Relaxed);
    }

    pub(crate) fn add_healed(&self, count: u64) {
        self.healed.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn read(&self, reloads: u64) -> Stats {
        Stats {
            decisions: self.decisions.load(Ordering::Relaxed),
            degraded: self.degraded.load(Ordering::Relaxed),
            healed: self.healed.load(Ordering::Relaxed),
            reloads,
        }
    }
}
