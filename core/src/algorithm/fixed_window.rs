//! Fixed window: a counter for each window, aligned to the Unix epoch.
//!
//! Reading: hits counted, microseconds until the window ends, unused.

use super::{Found, Judgement, Reading};
use crate::limit::Limit;

/// A window, by its start in microseconds, and the hits counted in it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct State {
    start: u64,
    count: u64,
}

fn window(limit: &Limit, now: u64) -> u64 {
    now - now % limit.period_micros()
}

/// Hits counted in the current window.
fn counted(state: Option<&State>, limit: &Limit, now: u64) -> u64 {
    state.filter(|state| state.start >= window(limit, now)).map_or(0, |state| state.count)
}

pub(super) fn judge(state: Option<&State>, limit: &Limit, now: u64, cost: u64) -> Judgement {
    let counted = counted(state, limit, now);
    Judgement {
        passes: cost == 0 || counted <= limit.count() - cost,
        reading: [counted, window(limit, now) + limit.period_micros() - now, 0],
        ahead: state.is_some_and(|state| state.start > now),
    }
}

pub(super) fn take(state: Option<&State>, limit: &Limit, now: u64, cost: u64) -> State {
    State { start: window(limit, now), count: counted(state, limit, now) + cost }
}

pub(super) fn give(state: &State, limit: &Limit, now: u64, amount: u64) -> Option<State> {
    let count = counted(Some(state), limit, now).saturating_sub(amount);
    (count > 0).then(|| State { start: window(limit, now), count })
}

pub(super) fn heal(state: &mut State, limit: &Limit, now: u64) {
    state.start = state.start.min(window(limit, now));
}

pub(super) fn decide([counted, until_end, _]: Reading, limit: &Limit, cost: u64) -> Found {
    Found {
        remaining: limit.count().saturating_sub(counted),
        retry_after: if cost > 0 && counted > limit.count() - cost { until_end } else { 0 },
        reset_after: if counted > 0 { until_end } else { 0 },
    }
}
