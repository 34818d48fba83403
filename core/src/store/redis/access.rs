//! How the servers of a store are reached: the same for all of them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What all nodes of a store share.
#[derive(Debug)]
pub(crate) struct Access {
    pub(super) connect_timeout: Duration,
    /// How often a script had to be sent whole, since a server had forgotten it.
    reloads: AtomicU64,
}

impl Access {
    pub(crate) fn new(connect_timeout: Duration) -> Self {
        Self { connect_timeout, reloads: AtomicU64::new(0) }
    }

    pub(super) fn count_reload(&self) {
        self.reloads.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn reloads(&self) -> u64 {
        self.reloads.load(Ordering::Relaxed)
    }
}
