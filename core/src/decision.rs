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

    /// Puts together what the Limits of one call say.
    pub(crate) fn of(limits: LimitDecisions, allowed: bool, source: Source) -> Self {
        let denied_by = if allowed { None } else { longest_wait(&limits) };
        let tightest = denied_by.unwrap_or_else(|| least_remaining(&limits));
        Self {
            allowed,
            limit: limits[tightest].limit,
            remaining: limits[tightest].remaining,
            retry_after: limits.iter().map(|limit| limit.retry_after).reduce(longer_wait).unwrap_or_default(),
            reset_after: limits.iter().map(|limit| limit.reset_after).max().unwrap_or_default(),
            source,
            reason: None,
            denied_by,
            limits,
        }
    }
}

impl Decision {
    /// The same as a denial by its tightest Limit, for at least this wait.
    pub(crate) fn denied_for(mut self, wait: Duration) -> Self {
        let tightest = self.denied_by.unwrap_or_else(|| least_remaining(&self.limits));
        let longer = self.limits[tightest].retry_after.map(|known| known.max(wait));
        self.limits.list[tightest].retry_after = longer;
        Self { denied_by: Some(tightest), ..Self::of(self.limits, false, self.source) }
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

/// The [`LimitDecision`] of each Limit, in the order in which they were given. Reads like a slice.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct LimitDecisions {
    list: [LimitDecision; MAX_LIMITS],
    len: usize,
}

impl LimitDecisions {
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

impl FromIterator<LimitDecision> for LimitDecisions {
    fn from_iter<I: IntoIterator<Item = LimitDecision>>(decisions: I) -> Self {
        let mut all = Self::default();
        decisions.into_iter().for_each(|decision| all.push(decision));
        all
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
