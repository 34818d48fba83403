//! One rule in the words of every contender.

use std::num::NonZeroU32;
use std::time::Duration;

use governor::Quota;

/// A token bucket that holds `count` and refills as many in `seconds`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rule {
    pub(crate) count: u32,
    pub(crate) seconds: u64,
}

impl Rule {
    /// As grifo reads it.
    pub(crate) fn text(self) -> String {
        format!("{}/{}s", self.count, self.seconds)
    }

    /// Microseconds in which one token comes back.
    pub(crate) fn per_token(self) -> f64 {
        self.seconds as f64 * 1e6 / f64::from(self.count)
    }

    /// Microseconds in which an empty bucket fills.
    pub(crate) const fn to_full(self) -> u64 {
        self.seconds * 1_000_000
    }

    pub(crate) fn quota(self) -> Result<Quota, String> {
        let burst = NonZeroU32::new(self.count).ok_or("a rule of nothing")?;
        let quota = Quota::with_period(Duration::from_secs_f64(self.per_token() / 1e6)).ok_or("a rate too high")?;
        Ok(quota.allow_burst(burst))
    }
}
