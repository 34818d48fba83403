//! The rules: a [`Limit`], the [`Limits`] of one limiter, and the numbers that exact arithmetic needs.

mod text;
mod tick;

use std::fmt;
use std::time::Duration;

pub(crate) use self::tick::Tick;
use crate::clock::microseconds;
use crate::error::{Error, ErrorKind};

/// How many Limits a limiter may have.
pub(crate) const MAX_LIMITS: usize = 4;
/// The largest whole number up to which doubles, and so Lua, count exactly.
pub(crate) const MAX_EXACT: u64 = (1 << 53) - 1;
/// No period, and no time to fill a bucket, may be longer: times to come stay exact until the year 2155.
const MAX_SPAN_DAYS: u64 = 36_500;
/// The same in microseconds.
pub(crate) const MAX_SPAN: u64 = MAX_SPAN_DAYS * 86_400_000_000;
/// How a Limit counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Algorithm {
    /// Holds up to *burst* tokens, starts full, refills continuously.
    TokenBucket,
    /// Counts every hit for exactly one period after it. Exact for any window; memory grows with the hits.
    SlidingWindow,
    /// Weighs the hits of the previous window by how much of it still lies within a period: an estimate in constant memory.
    SlidingWindowCounter,
    /// Counts in windows aligned to the Unix epoch. Can admit twice the count across the edge of two windows.
    FixedWindow,
}

impl Algorithm {
    /// The name in the text form of a Limit.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::TokenBucket => "token-bucket",
            Self::SlidingWindow => "sliding-window",
            Self::SlidingWindowCounter => "sliding-window-counter",
            Self::FixedWindow => "fixed-window",
        }
    }
}

/// A rule: an algorithm, a count, a period, and for a token bucket a burst. A value that knows no key and no store.
///
/// ```
/// use std::time::Duration;
/// use grifo::Limit;
///
/// let limit = Limit::token_bucket(100, Duration::from_secs(60))?.with_burst(20)?;
/// assert_eq!(limit, "100/min burst 20".parse()?);
/// # Ok::<(), grifo::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Limit {
    algorithm: Algorithm,
    count: u64,
    period: u64,
    burst: u64,
    tick: Tick,
    /// `num` and `den` follow from the rest; they are kept since every call needs them.
    num: u64,
    den: u64,
}

impl Limit {
    /// A bucket of `count` tokens that refills continuously, `count` in each `period`.
    /// # Errors
    /// [`ErrorKind::InvalidLimit`] for a count or period of zero, a period that is not whole milliseconds, and what is too
    /// large to count exactly. This holds for the other algorithms too.
    pub fn token_bucket(count: u64, period: Duration) -> Result<Self, Error> {
        Self::new(Algorithm::TokenBucket, count, period, count)
    }

    /// At most `count` in any `period`, each hit counted for exactly one period.
    /// # Errors
    /// As for [`token_bucket`](Self::token_bucket).
    pub fn sliding_window(count: u64, period: Duration) -> Result<Self, Error> {
        Self::new(Algorithm::SlidingWindow, count, period, count)
    }

    /// About `count` in any `period`, from two counters.
    /// # Errors
    /// As for [`token_bucket`](Self::token_bucket).
    pub fn sliding_window_counter(count: u64, period: Duration) -> Result<Self, Error> {
        Self::new(Algorithm::SlidingWindowCounter, count, period, count)
    }

    /// At most `count` in each window of `period`, aligned to the Unix epoch. Up to twice the count can pass in a short time
    /// around the edge of two windows.
    /// # Errors
    /// As for [`token_bucket`](Self::token_bucket).
    pub fn fixed_window(count: u64, period: Duration) -> Result<Self, Error> {
        Self::new(Algorithm::FixedWindow, count, period, count)
    }

    /// The same token bucket, holding up to `burst` tokens.
    /// # Errors
    /// [`ErrorKind::InvalidLimit`] for a window, a burst of zero, and what is too large to count exactly.
    pub fn with_burst(self, burst: u64) -> Result<Self, Error> {
        if self.algorithm != Algorithm::TokenBucket {
            return Err(invalid(format!("burst belongs to token-bucket alone, not to {}", self.algorithm.name())));
        }
        Self::new(self.algorithm, self.count, self.period(), burst)
    }

    pub(crate) fn new(algorithm: Algorithm, count: u64, period: Duration, burst: u64) -> Result<Self, Error> {
        if count == 0 || burst == 0 || period.is_zero() {
            return Err(invalid("count, period and burst must be at least 1"));
        }
        if !period.subsec_nanos().is_multiple_of(1_000_000) {
            return Err(invalid("a period must be whole milliseconds"));
        }
        let period = microseconds(period);
        if period > MAX_SPAN {
            return Err(invalid(format!("the period is too long; the longest is {MAX_SPAN_DAYS} d")));
        }
        let finest = Self { algorithm, count, period, burst, tick: Tick::Micro, num: 1, den: 1 };
        let Some(limit) = Tick::ALL.into_iter().map(|tick| finest.counted_in(tick)).find(Self::fits) else {
            return Err(finest.too_large());
        };
        if algorithm == Algorithm::TokenBucket && burst > limit.longest_burst() {
            let most = limit.longest_burst();
            return Err(invalid(format!(
                "an empty bucket would take more than {MAX_SPAN_DAYS} d to fill; the largest burst at this rate is {most}"
            )));
        }
        Ok(limit)
    }

    /// The same in other ticks, with the rate as a fraction of its own.
    const fn counted_in(mut self, tick: Tick) -> Self {
        self.tick = tick;
        let common = greatest_common_divisor(self.count, self.period_ticks());
        self.num = self.period_ticks() / common;
        self.den = self.count / common;
        self
    }

    /// Whether every product that the algorithm forms stays exact with this tick.
    fn fits(&self) -> bool {
        let largest = match self.algorithm {
            Algorithm::TokenBucket => u128::from(self.burst) * u128::from(self.num()) + u128::from(self.den()),
            Algorithm::SlidingWindowCounter => u128::from(self.count) * u128::from(self.period_ticks()),
            Algorithm::SlidingWindow | Algorithm::FixedWindow => u128::from(self.count),
        };
        largest <= u128::from(MAX_EXACT)
    }

    /// The largest burst that fills within the longest time.
    fn longest_burst(&self) -> u64 {
        let most = u128::from(MAX_SPAN) * u128::from(self.count) / u128::from(self.period);
        u64::try_from(most).unwrap_or(u64::MAX)
    }

    /// The error that names the largest value that fits.
    fn too_large(self) -> Error {
        let coarsest = Tick::Milli;
        if self.algorithm == Algorithm::TokenBucket {
            let limit = self.counted_in(coarsest);
            let room = (MAX_EXACT.saturating_sub(limit.den()) / limit.num()).min(limit.longest_burst());
            if room > 0 {
                return invalid(format!("too large to count exactly; the largest burst at this rate is {room}"));
            }
        }
        let fits = |count| Self { count, burst: count.min(self.burst), ..self }.counted_in(coarsest).fits();
        let most = largest(fits);
        invalid(format!("too large to count exactly; the largest count that fits with this period is {most}"))
    }

    /// How it counts.
    #[must_use]
    pub const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// How many in each [`period`](Self::period).
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// The period.
    #[must_use]
    pub const fn period(&self) -> Duration {
        Duration::from_micros(self.period)
    }

    /// The most that one call can take: the burst of a token bucket, the count of a window.
    #[must_use]
    pub const fn capacity(&self) -> u64 {
        self.burst
    }

    /// The period in microseconds.
    pub(crate) const fn period_micros(&self) -> u64 {
        self.period
    }

    /// Microseconds in a tick, the grain of its time.
    pub(crate) const fn tick(&self) -> u64 {
        self.tick.micros()
    }

    /// The grain of its time.
    pub(crate) const fn grain(&self) -> Tick {
        self.tick
    }

    pub(crate) const fn period_ticks(&self) -> u64 {
        self.tick.whole(self.period)
    }

    /// Units in a token. A tick adds [`den`](Self::den) units, so that `num` and `den` make the rate an exact fraction.
    pub(crate) const fn num(&self) -> u64 {
        self.num
    }

    /// Units that a tick adds.
    pub(crate) const fn den(&self) -> u64 {
        self.den
    }

    /// Units in a full bucket.
    pub(crate) const fn full(&self) -> u64 {
        self.burst * self.num
    }

    /// The longest that a key may take to be as new.
    pub(crate) const fn longest_reset(&self) -> Duration {
        match self.algorithm {
            Algorithm::TokenBucket => Duration::from_micros(self.full().div_ceil(self.den) * self.tick()),
            _ => Duration::from_micros(2 * self.period),
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        text::write(self, f)
    }
}

impl std::str::FromStr for Limit {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        text::parse_limit(text)
    }
}

/// The 1 to 4 Limits of a limiter, decided together: all are charged or none is.
///
/// Made from text (`"10/s + 1000/h"`), a [`Limit`], or an array, slice or vector of them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Limits(Vec<Limit>);

impl Limits {
    fn new(limits: Vec<Limit>) -> Result<Self, Error> {
        if limits.is_empty() || limits.len() > MAX_LIMITS {
            return Err(invalid(format!("a limiter has 1 to {MAX_LIMITS} limits, not {}", limits.len())));
        }
        for (index, limit) in limits.iter().enumerate() {
            let same = |other: &&Limit| (other.algorithm, other.period) == (limit.algorithm, limit.period);
            if let Some(other) = limits[..index].iter().find(same) {
                return Err(invalid(format!(
                    "{other} and {limit} have the same algorithm and period, and would share one state; keep the stricter"
                )));
            }
        }
        Ok(Self(limits))
    }

    /// The Limits in order.
    #[must_use]
    pub fn as_slice(&self) -> &[Limit] {
        &self.0
    }
}

impl std::ops::Deref for Limits {
    type Target = [Limit];

    fn deref(&self) -> &[Limit] {
        &self.0
    }
}

impl fmt::Display for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, limit) in self.0.iter().enumerate() {
            write!(f, "{}{limit}", if index == 0 { "" } else { " + " })?;
        }
        Ok(())
    }
}

impl std::str::FromStr for Limits {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::new(text::parse(text)?)
    }
}

impl TryFrom<&str> for Limits {
    type Error = Error;

    fn try_from(text: &str) -> Result<Self, Error> {
        text.parse()
    }
}

impl TryFrom<&String> for Limits {
    type Error = Error;

    fn try_from(text: &String) -> Result<Self, Error> {
        text.parse()
    }
}

impl TryFrom<String> for Limits {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        text.parse()
    }
}

impl From<Limit> for Limits {
    fn from(limit: Limit) -> Self {
        Self(vec![limit])
    }
}

impl<const N: usize> TryFrom<[Limit; N]> for Limits {
    type Error = Error;

    fn try_from(limits: [Limit; N]) -> Result<Self, Error> {
        Self::new(limits.to_vec())
    }
}

impl TryFrom<&[Limit]> for Limits {
    type Error = Error;

    fn try_from(limits: &[Limit]) -> Result<Self, Error> {
        Self::new(limits.to_vec())
    }
}

impl TryFrom<Vec<Limit>> for Limits {
    type Error = Error;

    fn try_from(limits: Vec<Limit>) -> Result<Self, Error> {
        Self::new(limits)
    }
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidLimit, message)
}

const fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// The largest number for which `fits` holds, given that it holds for all smaller ones.
fn largest(fits: impl Fn(u64) -> bool) -> u64 {
    let (mut low, mut high) = (0, MAX_EXACT + 1);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if fits(middle) { low = middle } else { high = middle }
    }
    low
}
