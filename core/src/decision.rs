//! What a limiter answers.

use std::fmt;
use std::ops::Deref;
use std::time::Duration;

use crate::error::ErrorKind;
use crate::limit::MAX_LIMITS;

/// Who decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Source {
    /// The store: Redis, Valkey, or the embedded one.
    Store,
    /// The limit alone: a cost that can never pass needs no store.
    Limit,
    /// A denial that is remembered: until somebody gives back, the call cannot pass. Computed as if nobody else had taken
    /// anything since, so the waits are the least that there can be.
    DenyCache,
    /// A local limiter, on this instance's share, since the store could not answer.
    Fallback,
    /// [`FailurePolicy::Open`](crate::FailurePolicy::Open), since the store could not answer.
    Open,
    /// [`FailurePolicy::Closed`](crate::FailurePolicy::Closed), since the store could not answer.
    Closed,
}

impl Source {
    /// The name of this source, the same in every language.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Store => "store",
            Self::Limit => "limit",
            Self::DenyCache => "deny-cache",
            Self::Fallback => "fallback",
            Self::Open => "open",
            Self::Closed => "closed",
        }
    }
}

/// The answer to a call. A denial is an answer, not an error.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
#[must_use = "a decision that nobody looks at limits nothing"]
pub struct Decision {
    /// Whether the call may go on.
    pub allowed: bool,
    /// The burst or count of the tightest Limit: of those that denied the one with the longest wait, else the one with the
    /// least remaining.
    pub limit: u64,
    /// Whole tokens that a further call could take right now, of the tightest Limit. Under `Open` the whole limit, which then
    /// nobody counts.
    pub remaining: u64,
    /// Zero when allowed; else the shortest wait after which the same call would pass if nobody else took any;
    /// `None` when it never will. Under `Closed` the time until the store is tried again.
    pub retry_after: Option<Duration>,
    /// Time until the key is as new.
    pub reset_after: Duration,
    /// Who decided.
    pub source: Source,
    /// Why the store did not decide, when [`degraded`](Self::degraded).
    pub reason: Option<ErrorKind>,
    /// Index of the Limit that denied, among [`limits`](Self::limits); none when allowed, or denied by `Closed`.
    pub denied_by: Option<usize>,
    /// The same for each Limit, in the order in which they were given.
    pub limits: LimitDecisions,
}

impl Decision {
    /// Whether the failure policy answered in the store's place.
    #[must_use]
    pub const fn degraded(&self) -> bool {
        matches!(self.source, Source::Fallback | Source::Open | Source::Closed)
    }

    /// What the only Limit of a call says.
    #[inline(always)]
    pub(crate) fn of_one(limit: LimitDecision, allowed: bool, source: Source) -> Self {
        let waits = limit.retry_after != Some(Duration::ZERO);
        Self {
            allowed,
            limit: limit.limit,
            remaining: limit.remaining,
            retry_after: limit.retry_after,
            reset_after: limit.reset_after,
            source,
            reason: None,
            denied_by: if waits && !allowed { Some(0) } else { None },
            limits: LimitDecisions { list: [limit, NOTHING, NOTHING, NOTHING], len: 1 },
        }
    }

    /// Puts together what the Limits of one call say.
    #[inline]
    pub(crate) fn of(limits: impl IntoIterator<Item = LimitDecision>, allowed: bool, source: Source) -> Self {
        let mut decision = Self {
            allowed,
            limit: 0,
            remaining: 0,
            retry_after: Some(Duration::ZERO),
            reset_after: Duration::ZERO,
            source,
            reason: None,
            denied_by: None,
            limits: LimitDecisions { list: [NOTHING; MAX_LIMITS], len: 0 },
        };
        // Filled where it lies: it is large enough for copies to cost more than all the rest.
        limits.into_iter().for_each(|limit| decision.limits.push(limit));
        decision.sum_up();
        decision
    }

    /// Tells of all Limits together what each of them says.
    #[inline]
    fn sum_up(&mut self) {
        self.denied_by = if self.allowed { None } else { longest_wait(&self.limits) };
        let tightest = self.denied_by.unwrap_or_else(|| least_remaining(&self.limits));
        (self.limit, self.remaining) = (self.limits[tightest].limit, self.limits[tightest].remaining);
        for limit in self.limits.iter() {
            self.retry_after = longer_wait(self.retry_after, limit.retry_after);
            self.reset_after = self.reset_after.max(limit.reset_after);
        }
    }

    /// The same as a denial by its tightest Limit, for at least this wait.
    pub(crate) fn denied_for(mut self, wait: Duration) -> Self {
        let tightest = self.denied_by.unwrap_or_else(|| least_remaining(&self.limits));
        let longer = self.limits[tightest].retry_after.map(|known| known.max(wait));
        self.limits.list[tightest].retry_after = longer;
        Self { denied_by: Some(tightest), ..Self::of(self.limits.iter().copied(), false, self.source) }
    }
}

/// What one Limit of a limiter says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct LimitDecision {
    /// Its burst (token bucket) or count (windows).
    pub limit: u64,
    /// Whole tokens that a further call could take right now.
    pub remaining: u64,
    /// Zero when this Limit lets the call pass, else the shortest wait until it would; `None` when it never will.
    pub retry_after: Option<Duration>,
    /// Time until it is as new for this key.
    pub reset_after: Duration,
}

/// What lies behind the last Limit: all zeros, which are fastest to write.
const NOTHING: LimitDecision =
    LimitDecision { limit: 0, remaining: 0, retry_after: Some(Duration::ZERO), reset_after: Duration::ZERO };

/// The [`LimitDecision`] of each Limit, in the order in which they were given. Reads like a slice.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct LimitDecisions {
    list: [LimitDecision; MAX_LIMITS],
    len: usize,
}

impl LimitDecisions {
    #[inline]
    pub(crate) fn push(&mut self, decision: LimitDecision) {
        self.list[self.len] = decision;
        self.len += 1;
    }
}

impl fmt::Debug for LimitDecisions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl Deref for LimitDecisions {
    type Target = [LimitDecision];

    fn deref(&self) -> &[LimitDecision] {
        &self.list[..self.len]
    }
}

/// The longer of two waits; `None` is never.
fn longer_wait(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    Some(one?.max(other?))
}

/// The first of those that wait longest.
fn longest_wait(limits: &[LimitDecision]) -> Option<usize> {
    let wait = |index: &usize| limits[*index].retry_after.unwrap_or(Duration::MAX);
    (0..limits.len()).rev().filter(|index| wait(index) > Duration::ZERO).max_by_key(wait)
}

/// The first of those with the least remaining.
fn least_remaining(limits: &[LimitDecision]) -> usize {
    (0..limits.len()).min_by_key(|index| limits[*index].remaining).unwrap_or(0)
}
