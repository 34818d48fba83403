//! Sliding window of two counters: the hits of the window before count in proportion to how much of it lies within one period.
//!
//! The weighted part is never floored: fractions are compared by their products.
//!
//! Reading: hits in the current window, hits in the one before, ticks until the current one ends.

use super::{Found, Judgement, Reading, narrow};
use crate::limit::Limit;

/// The current window, by its start in microseconds, the hits in it and in the one before.
#[derive(Debug, Clone, Copy)]
pub(crate) struct State {
    start: u64,
    current: u64,
    previous: u64,
}

/// The state as of now: none when no hit counts.
fn read(state: Option<&State>, limit: &Limit, now: u64) -> Option<State> {
    let start = now - now % limit.period_micros();
    let state = *state?;
    let (current, previous) = if state.start >= start {
        (state.current, state.previous)
    } else if state.start + limit.period_micros() == start {
        (0, state.current)
    } else {
        (0, 0)
    };
    (current > 0 || previous > 0).then_some(State { start, current, previous })
}

fn reading(state: Option<State>, limit: &Limit, now: u64) -> Reading {
    let elapsed = now % limit.period_micros() / limit.tick();
    let (current, previous) = state.map_or((0, 0), |state| (state.current, state.previous));
    [current, previous, limit.period_ticks() - elapsed]
}

fn passes([current, previous, left]: Reading, limit: &Limit, cost: u64) -> bool {
    let Some(room) = limit.count().checked_sub(cost).and_then(|room| room.checked_sub(current)) else {
        return cost == 0;
    };
    cost == 0 || u128::from(previous) * u128::from(left) <= u128::from(room) * u128::from(limit.period_ticks())
}

pub(super) fn judge(state: Option<&State>, limit: &Limit, now: u64, cost: u64) -> Judgement {
    let reading = reading(read(state, limit, now), limit, now);
    Judgement { passes: passes(reading, limit, cost), reading, ahead: state.is_some_and(|state| state.start > now) }
}

pub(super) fn take(state: Option<&State>, limit: &Limit, now: u64, cost: u64) -> State {
    let start = now - now % limit.period_micros();
    let mut state = read(state, limit, now).unwrap_or(State { start, current: 0, previous: 0 });
    state.current += cost;
    state
}

pub(super) fn give(state: &State, limit: &Limit, now: u64, amount: u64) -> Option<State> {
    let mut state = read(Some(state), limit, now)?;
    state.current = state.current.saturating_sub(amount);
    (state.current > 0 || state.previous > 0).then_some(state)
}

pub(super) fn heal(state: &mut State, limit: &Limit, now: u64) {
    state.start = state.start.min(now - now % limit.period_micros());
}

pub(super) fn decide(reading: Reading, limit: &Limit, cost: u64) -> Found {
    let [current, previous, left] = reading;
    let period = limit.period_ticks();
    let (wide_period, weighted) = (u128::from(period), u128::from(previous) * u128::from(left));
    let unused = u128::from(limit.count().saturating_sub(current)) * wide_period;
    Found {
        remaining: narrow(unused.saturating_sub(weighted) / wide_period),
        retry_after: if passes(reading, limit, cost) { 0 } else { wait(reading, limit, cost) * limit.tick() },
        reset_after: match (current, previous) {
            (0, 0) => 0,
            (0, _) => left * limit.tick(),
            _ => (left + period) * limit.tick(),
        },
    }
}

/// Ticks until a call of `cost` that was denied would pass.
fn wait([current, previous, left]: Reading, limit: &Limit, cost: u64) -> u64 {
    let period = limit.period_ticks();
    // Of `hits` before the edge, no more than `room` may still count: so many ticks of the window must be left at most.
    let left_at_most = |room: u64, hits: u64| narrow(u128::from(room) * u128::from(period) / u128::from(hits));
    match (limit.count() - cost).checked_sub(current) {
        Some(room) => left - left_at_most(room, previous),
        None => left + period.saturating_sub(left_at_most(limit.count() - cost, current)),
    }
}
