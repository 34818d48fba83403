//! The store's clock as last learnt, for decisions without the store: its windows line up with the store's.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use crate::clock::{Clock, sealed};

/// What is learnt varies with the time that replies take; a step back of no more than this is only that, in microseconds.
const REPLY_TIME: u64 = 1_000_000;

/// The local clock, moved to where the store's was when it last answered. Like a store's own it does not go back and forth:
/// tokens would be given twice.
#[derive(Debug)]
pub(super) struct LearntClock {
    local: Arc<dyn Clock>,
    /// Microseconds by which the store's clock is ahead of the local one.
    ahead: AtomicI64,
    /// The last time that was told.
    told: AtomicU64,
}

impl LearntClock {
    pub(super) fn new(local: Arc<dyn Clock>) -> Self {
        Self { local, ahead: AtomicI64::new(0), told: AtomicU64::new(0) }
    }

    pub(super) fn learn(&self, store_time: u64) {
        let ahead = i64::try_from(i128::from(store_time) - i128::from(self.local.now())).unwrap_or(0);
        self.ahead.store(ahead, Ordering::Relaxed);
    }
}

impl sealed::Sealed for LearntClock {}

impl Clock for LearntClock {
    fn now(&self) -> u64 {
        let now = self.local.now().saturating_add_signed(self.ahead.load(Ordering::Relaxed));
        let told = self.told.fetch_max(now, Ordering::Relaxed);
        if told <= now {
            return now;
        }
        if told - now <= REPLY_TIME {
            return told;
        }
        self.told.store(now, Ordering::Relaxed);
        now
    }

    fn needs_runtime(&self) -> bool {
        self.local.needs_runtime()
    }

    fn sleep_until(&self, time: u64) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        let local = time.saturating_add_signed(self.ahead.load(Ordering::Relaxed).saturating_neg());
        self.local.sleep_until(local)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::testing::ManualClock;

    #[test]
    fn it_follows_the_store_but_not_its_reply_times() {
        let local = ManualClock::new();
        let start = local.now();
        let clock = LearntClock::new(Arc::new(local.clone()));
        assert_eq!(clock.now(), start);
        clock.learn(start + 5_000_000);
        assert_eq!(clock.now(), start + 5_000_000);
        clock.learn(start + 4_990_000);
        assert_eq!(clock.now(), start + 5_000_000);
        local.advance(Duration::from_millis(20));
        assert_eq!(clock.now(), start + 5_010_000);
        clock.learn(start);
        assert_eq!(clock.now(), start);
    }
}
