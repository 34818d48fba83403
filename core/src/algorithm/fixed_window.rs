//! Fixed window: a counter for each window, aligned to the Unix epoch.
//!
//! Reading: hits counted, microseconds until the window ends, unused.

use super::{Found, Judgement, Reading};
use crate::limit::Limit;

/// A window, by its start in microseconds, the hits counted in it, and the Limit that wrote it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct State {
    start: u64,
    count: u64,
    capacity: u64,
    period: u64,
}

#[inline]
fn window(limit: &Limit, now: u64) -> u64 {
    now - now % limit.period_micros()
}

#[inline(always)]
pub(super) fn judge(state: Option<&State>, limit: &Limit, now: u64, cost: u64) -> Judgement {
    let window = window(limit, now);
    let counted = state.filter(|state| state.start >= window).map_or(0, |state| state.count);
    Judgement {
        passes: cost == 0 || counted.checked_add(cost).is_some_and(|count| count <= limit.count()),
        reading: [counted, window + limit.period_micros() - now, 0],
        ahead: state.is_some_and(|state| state.start > now),
    }
}

#[inline(always)]
pub(super) fn take([counted, until_end, _]: Reading, limit: &Limit, now: u64, cost: u64) -> (State, Reading) {
    let count = counted + cost;
    let start = now + until_end - limit.period_micros();
    let state = State { start, count, capacity: limit.capacity(), period: limit.period_micros() };
    (state, [count, until_end, 0])
}

pub(super) fn give(state: &State, limit: &Limit, now: u64, amount: u64) -> Option<State> {
    let [counted, until_end, _] = judge(Some(state), limit, now, 0).reading;
    let left = counted.checked_sub(amount).filter(|left| *left > 0)?;
    Some(take([0, until_end, 0], limit, now, left).0)
}

pub(super) fn heal(state: &mut State, limit: &Limit, now: u64) {
    state.start = state.start.min(window(limit, now));
}

pub(super) fn later([counted, until_end, _]: Reading, limit: &Limit, elapsed: u64) -> Reading {
    match elapsed.checked_sub(until_end) {
        None => [counted, until_end - elapsed, 0],
        Some(over) => [0, limit.period_micros() - over % limit.period_micros(), 0],
    }
}

#[inline(always)]
pub(super) fn decide([counted, until_end, _]: Reading, limit: &Limit, cost: u64) -> Found {
    Found {
        remaining: limit.count().saturating_sub(counted),
        retry_after: if cost > 0 && counted > limit.count() - cost { until_end } else { 0 },
        reset_after: if counted > 0 { until_end } else { 0 },
    }
}

impl State {
    pub(super) const fn as_new_at(&self) -> u64 {
        self.start + self.period
    }

    pub(super) fn used(&self, now: u64) -> f64 {
        if self.as_new_at() > now { self.count as f64 / self.capacity as f64 } else { 0.0 }
    }
}
