//! What a client has counted.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

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

/// A counter that threads do not wait for each other at.
#[derive(Debug, Default)]
struct Striped([Stripe; STRIPES]);

/// On cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Stripe(AtomicU64);

const STRIPES: usize = 16;

thread_local! {
    /// The stripe of a thread; neighbours have different ones.
    static STRIPE: usize = NEXT_STRIPE.fetch_add(1, Ordering::Relaxed) % STRIPES;
}
static NEXT_STRIPE: AtomicUsize = AtomicUsize::new(0);

impl Striped {
    fn add(&self, count: u64) {
        let stripe = STRIPE.try_with(|stripe| *stripe).unwrap_or_default();
        self.0[stripe].0.fetch_add(count, Ordering::Relaxed);
    }

    fn sum(&self) -> u64 {
        self.0.iter().map(|stripe| stripe.0.load(Ordering::Relaxed)).sum()
    }
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    decisions: Striped,
    degraded: AtomicU64,
    healed: AtomicU64,
}

impl Counters {
    pub(crate) fn add_decisions(&self, count: usize) {
        self.decisions.add(count as u64);
    }

    pub(crate) fn add_degraded(&self, count: usize) {
        self.degraded.fetch_add(count as u64, Ordering::Relaxed);
    }

    pub(crate) fn add_healed(&self, count: u64) {
        self.healed.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn read(&self, reloads: u64) -> Stats {
        Stats {
            decisions: self.decisions.sum(),
            degraded: self.degraded.load(Ordering::Relaxed),
            healed: self.healed.load(Ordering::Relaxed),
            reloads,
        }
    }
}
