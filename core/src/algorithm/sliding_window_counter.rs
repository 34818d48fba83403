//! Sliding window of two counters: the hits of the window before count in proportion to how much of it lies within one period.
//!
//! The weighted part is never floored: fractions are compared by their products.
//!
//! Reading: hits in the current window, hits in the one before, ticks until the current one ends.

use super::{Found, Judgement, Reading, divide};
use crate::limit::Limit;

/// The current window, by its start in microseconds, the hits in it and in the one before, and the Limit that wrote it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct State {
    start: u64,
    current: u64,
    previous: u64,
    capacity: u64,
    period: u64,
}

#[inline]
fn window(limit: &Limit, now: u64) -> u64 {
    now - now % limit.period_micros()
}

/// The hits in the window that starts at `start` and in the one before.
#[inline]
fn counted(state: Option<&State>, start: u64, period: u64) -> (u64, u64) {
    match state {
        Some(state) if state.start >= start => (state.current, state.previous),
        Some(state) if state.start + period == start => (0, state.current),
        _ => (0, 0),
    }
}

#[inline]
fn passes([current, previous, left]: Reading, limit: &Limit, cost: u64) -> bool {
    let Some(room) = limit.count().checked_sub(cost).and_then(|room| room.checked_sub(current)) else {
        return cost == 0;
    };
    cost == 0
        || previous == 0
        || u128::from(previous) * u128::from(left) <= u128::from(room) * u128::from(limit.period_ticks())
}

#[inline(always)]
pub(super) fn judge(state: Option<&State>, limit: &Limit, now: u64, cost: u64) -> Judgement {
    let start = window(limit, now);
    let (current, previous) = counted(state, start, limit.period_micros());
    let left = limit.period_ticks() - limit.grain().whole(now - start);
    let reading = [current, previous, left];
    Judgement { passes: passes(reading, limit, cost), reading, ahead: state.is_some_and(|state| state.start > now) }
}

#[inline(always)]
pub(super) fn take([current, previous, left]: Reading, limit: &Limit, now: u64, cost: u64) -> (State, Reading) {
    let current = current + cost;
    let (capacity, period) = (limit.capacity(), limit.period_micros());
    (State { start: window(limit, now), current, previous, capacity, period }, [current, previous, left])
}

pub(super) fn give(state: &State, limit: &Limit, now: u64, amount: u64) -> Option<State> {
    let [current, previous, left] = judge(Some(state), limit, now, 0).reading;
    let kept = current.saturating_sub(amount);
    (kept > 0 || previous > 0).then(|| take([0, previous, left], limit, now, kept).0)
}

pub(super) fn heal(state: &mut State, limit: &Limit, now: u64) {
    state.start = state.start.min(window(limit, now));
}

pub(super) fn later([current, previous, left]: Reading, limit: &Limit, elapsed: u64) -> Reading {
    let (elapsed, period) = (elapsed.div_ceil(limit.tick()), limit.period_ticks());
    match elapsed.checked_sub(left) {
        None => [current, previous, left - elapsed],
        Some(over) if over < period => [0, current, period - over],
        Some(over) => [0, 0, period - over % period],
    }
}

#[inline(always)]
pub(super) fn decide(reading: Reading, limit: &Limit, cost: u64) -> Found {
    let [current, previous, left] = reading;
    let room = limit.count().saturating_sub(current);
    let period = limit.period_ticks();
    Found {
        remaining: if previous == 0 { room } else { remaining(room, previous, left, period) },
        retry_after: if passes(reading, limit, cost) { 0 } else { wait(reading, limit, cost) * limit.tick() },
        reset_after: match (current, previous) {
            (0, 0) => 0,
            (0, _) => left * limit.tick(),
            _ => (left + period) * limit.tick(),
        },
    }
}

/// What hits of the window before leave of the room that those of the current one leave.
fn remaining(room: u64, previous: u64, left: u64, period: u64) -> u64 {
    let unused = u128::from(room) * u128::from(period);
    divide(unused.saturating_sub(u128::from(previous) * u128::from(left)), period)
}

/// Ticks until a call of `cost` that was denied would pass.
fn wait([current, previous, left]: Reading, limit: &Limit, cost: u64) -> u64 {
    let period = limit.period_ticks();
    // Of `hits` before the edge, no more than `room` may still count: so many ticks of the window must be left at most.
    let left_at_most = |room: u64, hits: u64| divide(u128::from(room) * u128::from(period), hits);
    match (limit.count() - cost).checked_sub(current) {
        Some(room) => left - left_at_most(room, previous),
        None => left + period.saturating_sub(left_at_most(limit.count() - cost, current)),
    }
}

impl State {
    pub(super) const fn as_new_at(&self) -> u64 {
        self.start + if self.current > 0 { 2 * self.period } else { self.period }
    }

    pub(super) fn used(&self, now: u64) -> f64 {
        let start = now - now % self.period;
        let (current, previous) = counted(Some(self), start, self.period);
        let weight = 1.0 - (now - start) as f64 / self.period as f64;
        (current as f64 + previous as f64 * weight) / self.capacity as f64
    }
}
