//! Sliding window: a log of every hit, with running sums, so that counting is a binary search.
//!
//! Reading: hits counted, microseconds until the newest no longer counts, microseconds until enough of the oldest no longer
//! count for the call to pass (0 when it passes).

use std::collections::VecDeque;

use super::{Found, Judgement, Reading};
use crate::limit::Limit;

/// Sums start anew above this, long before they would pass a u64.
const REBASE_ABOVE: u64 = 1 << 62;
/// A log whose hits are all gone keeps room for so many.
const ROOM_KEPT: usize = 16;

/// Hits of one moment, and the sum of all costs up to and with them.
#[derive(Debug, Clone, Copy)]
struct Hit {
    time: u64,
    sum: u64,
}

/// The log, and the Limit that wrote it. Its clock is the store's plus `shift`, and never steps back behind `latest`.
#[derive(Debug, Clone)]
pub(crate) struct State {
    hits: VecDeque<Hit>,
    /// The sum of costs before the first hit in the log.
    base: u64,
    shift: u64,
    latest: u64,
    capacity: u64,
    period: u64,
}

/// The log as of now.
struct Current {
    clock: u64,
    /// How many of the oldest hits no longer count.
    gone: usize,
    /// The sum up to these.
    base: u64,
    counted: u64,
}

impl State {
    fn clock(&self, now: u64) -> u64 {
        self.latest.max(now + self.shift)
    }

    /// None when no hit counts.
    #[inline]
    fn read(&self, period: u64, now: u64) -> Option<Current> {
        let clock = self.clock(now);
        let counts = |hit: &&Hit| hit.time + period > clock;
        let newest = self.hits.back().filter(counts)?;
        let is_whole = self.hits.front().filter(counts).is_some();
        let gone = if is_whole { 0 } else { self.hits.partition_point(|hit| !counts(&hit)) };
        let base = if gone == 0 { self.base } else { self.hits[gone - 1].sum };
        Some(Current { clock, gone, base, counted: newest.sum - base })
    }

    /// The first hit with at least `wanted` counted up to and with it.
    fn find(&self, current: &Current, wanted: u64) -> usize {
        self.hits.partition_point(|hit| hit.sum < current.base + wanted).max(current.gone)
    }

    /// Forgets hits that no longer count, and remembers what time it is and whose log this is.
    fn settle(&mut self, current: &Current, limit: &Limit, now: u64) {
        self.hits.drain(..current.gone);
        self.base = current.base;
        if self.base > REBASE_ABOVE {
            self.hits.iter_mut().for_each(|hit| hit.sum -= current.base);
            self.base = 0;
        }
        (self.shift, self.latest) = (current.clock - now, current.clock);
        (self.capacity, self.period) = (limit.capacity(), limit.period_micros());
    }

    /// A log of nothing.
    fn empty(limit: &Limit, now: u64) -> Self {
        let (capacity, period) = (limit.capacity(), limit.period_micros());
        Self { hits: VecDeque::new(), base: 0, shift: 0, latest: now, capacity, period }
    }

    pub(super) fn as_new_at(&self) -> u64 {
        self.hits.back().map_or(0, |newest| (newest.time + self.period).saturating_sub(self.shift))
    }

    pub(super) fn used(&self, now: u64) -> f64 {
        self.read(self.period, now).map_or(0.0, |current| current.counted as f64 / self.capacity as f64)
    }
}

#[inline]
pub(super) fn judge(state: Option<&State>, limit: &Limit, now: u64, cost: u64) -> Judgement {
    let period = limit.period_micros();
    let Some((state, current)) = state.and_then(|state| Some((state, state.read(period, now)?))) else {
        return Judgement { passes: true, reading: [0; 3], ahead: false };
    };
    let ahead = current.clock > now + state.shift;
    let until = |index: usize| state.hits[index].time + period - current.clock;
    let excess = if cost == 0 { 0 } else { (current.counted + cost).saturating_sub(limit.count()) };
    let wait = if excess == 0 { 0 } else { until(state.find(&current, excess)) };
    Judgement { passes: excess == 0, reading: [current.counted, until(state.hits.len() - 1), wait], ahead }
}

#[inline]
pub(super) fn take(state: &mut State, limit: &Limit, now: u64, cost: u64) -> Reading {
    let Some(current) = state.read(limit.period_micros(), now) else {
        let mut hits = std::mem::take(&mut state.hits);
        hits.clear();
        hits.shrink_to(ROOM_KEPT);
        hits.push_back(Hit { time: now, sum: cost });
        *state = State { hits, ..State::empty(limit, now) };
        return [cost, limit.period_micros(), 0];
    };
    state.settle(&current, limit, now);
    let counted = current.counted + cost;
    let sum = state.base + counted;
    match state.hits.back_mut() {
        Some(newest) if newest.time == current.clock => newest.sum = sum,
        _ => state.hits.push_back(Hit { time: current.clock, sum }),
    }
    [counted, limit.period_micros(), 0]
}

/// The log of a key that was as new.
pub(super) fn begin(limit: &Limit, now: u64, cost: u64) -> (State, Reading) {
    let mut state = State::empty(limit, now);
    let reading = take(&mut state, limit, now, cost);
    (state, reading)
}

/// Whether any hit still counts.
pub(super) fn give(state: &mut State, limit: &Limit, now: u64, amount: u64) -> bool {
    let Some(current) = state.read(limit.period_micros(), now) else { return false };
    let Some(left) = current.counted.checked_sub(amount).filter(|left| *left > 0) else { return false };
    let last = state.find(&current, left);
    state.hits.truncate(last + 1);
    state.hits[last].sum = current.base + left;
    state.settle(&current, limit, now);
    true
}

pub(super) fn heal(state: &mut State, now: u64) {
    state.shift = state.clock(now) - now;
}

/// Hits that stop counting meanwhile still do here: nothing tells when they were.
pub(super) fn later([counted, until_new, wait]: Reading, elapsed: u64) -> Reading {
    if elapsed >= until_new { [0; 3] } else { [counted, until_new - elapsed, wait.saturating_sub(elapsed)] }
}

#[inline(always)]
pub(super) fn decide([counted, until_new, wait]: Reading, limit: &Limit) -> Found {
    Found { remaining: limit.count().saturating_sub(counted), retry_after: wait, reset_after: until_new }
}
