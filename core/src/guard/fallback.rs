//! `FailurePolicy::Local`: a limiter in memory that decides on this instance's share while the store cannot.

use std::sync::Arc;
use std::time::Duration;

use super::learnt_clock::LearntClock;
use crate::clock::Clock;
use crate::decision::{Decision, LimitDecision, Source};
use crate::limit::{Algorithm, Limit, MAX_EXACT, MAX_LIMITS, MAX_SPAN};
use crate::store::memory::MemoryStore;
use crate::store::{Entry, Operation};

/// Shares are kept as fractions with no larger denominator.
const MAX_DENOMINATOR: u64 = 10_000;

/// A part of every Limit, as a fraction, since rates are exact.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Share {
    numerator: u64,
    denominator: u64,
}

impl Share {
    pub(crate) const WHOLE: Self = Self { numerator: 1, denominator: 1 };

    /// The fraction meant by a number of more than 0 and at most 1: 0.3333… is 1/3, found by its continued fraction.
    pub(crate) fn of(share: f64) -> Self {
        if share * MAX_DENOMINATOR as f64 <= 1.0 {
            let denominator = (1.0 / share).ceil().min(f64::from(u32::MAX)) as u64;
            return Self { numerator: 1, denominator };
        }
        let (mut before, mut current) = ((0, 1), (1, 0));
        let mut rest = share;
        loop {
            let whole = rest.floor();
            let next = (whole as u64 * current.0 + before.0, whole as u64 * current.1 + before.1);
            if next.1 > MAX_DENOMINATOR {
                break;
            }
            (before, current) = (current, next);
            let fraction = rest - whole;
            if fraction < 1e-9 || (current.0 as f64 / current.1 as f64 - share).abs() < 1e-12 {
                break;
            }
            rest = 1.0 / fraction;
        }
        Self { numerator: current.0, denominator: current.1 }
    }

    /// ⌊share · amount⌋, at least 1.
    fn part(self, amount: u64) -> u64 {
        let part = u128::from(amount) * u128::from(self.numerator) / u128::from(self.denominator);
        u64::try_from(part).unwrap_or(u64::MAX).max(1)
    }

    /// The part of a Limit: ⌊share · burst⌋ tokens at the share of the rate, or ⌊share · count⌋ in the same window.
    fn of_limit(self, limit: &Limit) -> Limit {
        let capacity = self.part(limit.capacity());
        let exact = match limit.algorithm() {
            Algorithm::TokenBucket => {
                let count = limit.count().checked_mul(self.numerator).filter(|count| *count <= MAX_EXACT);
                let period = u32::try_from(self.denominator).ok().and_then(|by| limit.period().checked_mul(by));
                count
                    .zip(period)
                    .and_then(|(count, period)| Limit::new(Algorithm::TokenBucket, count, period, capacity).ok())
            }
            algorithm => Limit::new(algorithm, capacity, limit.period(), capacity).ok(),
        };
        exact.or_else(|| self.rounded(limit, capacity)).or_else(|| self.rounded(limit, 1)).unwrap_or(*limit)
    }

    /// The part of a limit that cannot be divided exactly, rather too small: whole tokens in the same period, or a token at a
    /// time.
    fn rounded(self, limit: &Limit, capacity: u64) -> Option<Limit> {
        let (numerator, denominator) = (u128::from(self.numerator), u128::from(self.denominator));
        let tokens = u64::try_from(u128::from(limit.count()) * numerator / denominator).unwrap_or(u64::MAX);
        let per_token = (limit.period().as_millis() * denominator).div_ceil(u128::from(limit.count()) * numerator);
        let longest = MAX_SPAN / 1000 / capacity;
        let per_token = Duration::from_millis(u64::try_from(per_token).unwrap_or(u64::MAX).min(longest));
        let whole = || Limit::new(limit.algorithm(), tokens, limit.period(), capacity).ok();
        whole().or_else(|| Limit::new(limit.algorithm(), 1, per_token, capacity).ok())
    }
}

/// The local limiter.
#[derive(Debug)]
pub(crate) struct Fallback {
    store: MemoryStore,
    clock: Arc<LearntClock>,
}

impl Fallback {
    pub(crate) fn new(max_keys: usize, clock: Arc<dyn Clock>) -> Self {
        let clock = Arc::new(LearntClock::new(clock));
        Self { store: MemoryStore::new(max_keys, Arc::clone(&clock) as Arc<dyn Clock>), clock }
    }

    /// Takes note of the store's time when it answered.
    pub(crate) fn learn_time(&self, store_time: u64) {
        self.clock.learn(store_time);
    }

    pub(crate) fn decide(&self, share: Share, operation: Operation, entry: &Entry<'_>, next_try: Duration) -> Decision {
        let mut limits = [entry.limits[0]; MAX_LIMITS];
        limits.iter_mut().zip(entry.limits.iter()).for_each(|(part, limit)| *part = share.of_limit(limit));
        let limits = &limits[..entry.limits.len()];
        let cost = operation.judged_cost(entry.amount);
        if operation == Operation::Check && limits.iter().any(|limit| cost > limit.capacity()) {
            return self.waits_for_the_store(limits, entry, next_try);
        }
        let decision = self.store.decide_with(operation, entry, limits, None).answer.decision(limits, cost);
        by_rule(decision.limits.iter().copied(), entry.limits, decision.allowed)
    }

    /// A cost above the share but within the Limit: only the store can admit it.
    fn waits_for_the_store(&self, limits: &[Limit], entry: &Entry<'_>, next_try: Duration) -> Decision {
        let peeked = self.store.decide_with(Operation::Peek, &Entry { amount: 1, ..*entry }, limits, None);
        let seen = peeked.answer.decision(limits, 0);
        let wait = next_try.max(Duration::from_micros(1));
        let decisions = seen.limits.iter().zip(limits).map(|(decision, limit)| LimitDecision {
            retry_after: Some(if entry.amount > limit.capacity() { wait } else { Duration::ZERO }),
            ..*decision
        });
        by_rule(decisions, entry.limits, false)
    }
}

/// A decision on shares, told in terms of the rules: `limit` is always the rule's.
fn by_rule(shares: impl Iterator<Item = LimitDecision>, rules: &[Limit], allowed: bool) -> Decision {
    let told = shares.zip(rules).map(|(share, rule)| LimitDecision { limit: rule.capacity(), ..share });
    Decision::of(told, allowed, Source::Fallback)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(number: f64) -> (u64, u64) {
        let share = Share::of(number);
        (share.numerator, share.denominator)
    }

    #[test]
    fn a_share_is_the_fraction_that_is_meant() {
        assert_eq!(share(1.0), (1, 1));
        assert_eq!(share(0.25), (1, 4));
        assert_eq!(share(0.1), (1, 10));
        for n in 1..=200_u32 {
            assert_eq!(share(1.0 / f64::from(n)), (1, n.into()));
        }
        assert_eq!(share(2.0 / 3.0), (2, 3));
        assert_eq!(share(0.375), (3, 8));
        let (numerator, denominator) = share(std::f64::consts::FRAC_1_PI);
        assert!(
            denominator <= MAX_DENOMINATOR
                && (numerator as f64 / denominator as f64 - std::f64::consts::FRAC_1_PI).abs() < 1e-7
        );
        assert_eq!(share(0.00005), (1, 20_000));
        assert_eq!(share(f64::MIN_POSITIVE), (1, u32::MAX.into()));
    }

    #[test]
    fn a_limit_is_divided_with_its_rate() {
        let part = |text: &str, number: f64| Share::of(number).of_limit(&text.parse().unwrap()).to_string();
        assert_eq!(part("100/min burst 20", 0.25), "100/4min burst 5");
        assert_eq!(part("10/min", 1.0 / 3.0), "10/3min burst 3");
        assert_eq!(part("fixed-window 10/min", 1.0 / 3.0), "fixed-window 3/min");
        assert_eq!(part("sliding-window 2/s", 0.01), "sliding-window 1/s");
        assert_eq!(part("3/30000d", 0.1), "1/36500d");
        assert_eq!(part("100/min", 1e-6), "100/1000000min burst 1");
        assert_eq!(part("1003/30000d", 0.37), "371/30000d");
        assert_eq!(part("10000/36500d", 0.3001), "1/1050849716ms burst 3001");
    }
}
