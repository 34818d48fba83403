//! The pause before what failed is tried again.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(1);

/// Doubles with each failure; the jitter keeps clients apart that lost the same server.
pub(super) fn backoff(failures: u32) -> Duration {
    let longest = FIRST.saturating_mul(1 << failures.min(10)).min(LONGEST);
    longest.mul_f64(0.5 + fastrand::f64() / 2.0)
}
