//! Where the embedded store takes its time from.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A source of time for `memory://`.
///
/// Users choose between the default and [`ManualClock`](crate::testing::ManualClock); the trait is sealed.
pub trait Clock: fmt::Debug + Send + Sync + sealed::Sealed {
    /// Microseconds since the Unix epoch.
    fn now(&self) -> u64;

    /// Whether sleeping takes a Tokio runtime.
    fn needs_runtime(&self) -> bool;

    /// Ends once [`now`](Self::now) is `time` or later.
    fn sleep_until(&self, time: u64) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}

pub(crate) mod sealed {
    /// Keeps the trait closed: a clock that steps back would break what the store promises.
    pub trait Sealed {}
}

/// The monotonic clock; the wall clock is read once, to align windows, and may then do as it likes.
#[derive(Debug)]
pub(crate) struct MonotonicClock {
    started: Instant,
    epoch: u64,
}

impl MonotonicClock {
    pub(crate) fn new() -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { started: Instant::now(), epoch: microseconds(since_epoch) }
    }
}

impl sealed::Sealed for MonotonicClock {}

impl Clock for MonotonicClock {
    fn now(&self) -> u64 {
        self.epoch + microseconds(self.started.elapsed())
    }

    fn needs_runtime(&self) -> bool {
        true
    }

    fn sleep_until(&self, time: u64) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move {
            let wait = time.saturating_sub(self.now());
            tokio::time::sleep(Duration::from_micros(wait)).await;
        })
    }
}

/// Whole microseconds, of which a u64 holds 584,000 years.
pub(crate) const fn microseconds(duration: Duration) -> u64 {
    // In 64 bits: this is in the way of every call.
    duration.as_secs().saturating_mul(1_000_000).saturating_add(duration.subsec_micros() as u64)
}
