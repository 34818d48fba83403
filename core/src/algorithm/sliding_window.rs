//! Sliding window: a log of every hit, with running sums, so that counting is a binary search.
//!
//! Reading: hits counted, microseconds until the newest no longer counts, microseconds until enough of the oldest no longer
//! count for the call to pass (0 when it passes).

use std::collections::VecDeque;

use super::{Found, Judgement, Reading};
use crate::limit::Limit;

/// Sums start anew above this, long before they would pass a u64.
const REBASE_ABOVE: u64 = 1 << 62;

/// Hits of one moment, and the sum of all costs up to and with them.
#[derive(Debug, Clone, Copy)]
struct Hit {
    time: u64,
    sum: u64,
}

/// The log. Its clock is the store's plus `shift`, and never steps back behind `latest`.
#[derive(Debug, Clone, Default)]
pub(crate) struct State {
    hits: VecDeque<Hit>,
    /// The sum of costs before the first hit in the log.
    base: u64,
    shift: u64,
    latest: u64,
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
    fn read(&self, limit: &Limit, now: u64) -> Option<Current> {
        let clock = self.clock(now);
        let newest = self.hits.back().filter(|newest| newest.time + limit.period_micros() > clock)?;
        let gone = self.hits.partition_point(|hit| hit.time + limit.period_micros() <= clock);
        let base = if gone == 0 { self.base } else { self.hits[gone - 1].sum };
        Some(Current { clock, gone, base, counted: newest.sum - base })
    }

    /// The first hit with at least `wanted` counted up to and with it.
    fn find(&self, current: &Current, wanted: u64) -> usize {
        self.hits.partition_point(|hit| hit.sum < current.base + wanted).max(current.gone)
    }

    /// Forgets hits that no longer count, and remembers what time it is.
    fn settle(&mut self, current: &Current, now: u64) {
        self.hits.drain(..current.gone);
        self.base = current.base;
        if self.base > REBASE_ABOVE {
            self.hits.iter_mut().for_each(|hit| hit.sum -= current.base);
            self.base = 0;
        }
        (self.shift, self.latest) = (current.clock - now, current.clock);
    }
}

pub(super) fn judge(state: Option<&State>, limit: &Limit, now: u64, cost: u64) -> Judgement {
    let Some((state, current)) = state.and_then(|state| Some((state, state.read(limit, now)?))) else {
        return Judgement { passes: true, reading: [0; 3], ahead: false };
    };
    let ahead = current.clock > now + state.shift;
    let until = |index: usize| state.hits[index].time + limit.period_micros() - current.clock;
    let excess = if cost == 0 { 0 } else { current.counted.saturating_sub(limit.count() - cost) };
    let wait = if excess == 0 { 0 } else { until(state.find(&current, excess)) };
    Judgement { passes: excess == 0, reading: [current.counted, until(state.hits.len() - 1), wait], ahead }
}

pub(super) fn take(state: Option<State>, limit: &Limit, now: u64, cost: u64) -> State {
    let mut state = state.unwrap_or_default();
    let Some(current) = state.read(limit, now) else {
        return State { hits: VecDeque::from([Hit { time: now, sum: cost }]), base: 0, shift: 0, latest: now };
    };
    state.settle(&current, now);
    let sum = state.base + current.counted + cost;
    match state.hits.back_mut() {
        Some(newest) if newest.time == current.clock => newest.sum = sum,
        _ => state.hits.push_back(Hit { time: current.clock, sum }),
    }
    state
}

pub(super) fn give(mut state: State, limit: &Limit, now: u64, amount: u64) -> Option<State> {
    let current = state.read(limit, now)?;
    let left = current.counted.checked_sub(amount).filter(|left| *left > 0)?;
    let last = state.find(&current, left);
    state.hits.truncate(last + 1);
    state.hits[last].sum = current.base + left;
    state.settle(&current, now);
    Some(state)
}

pub(super) fn heal(state: &mut State, now: u64) {
    state.shift = state.clock(now) - now;
}

pub(super) fn decide([counted, until_new, wait]: Reading, limit: &Limit) -> Found {
    Found { remaining: limit.count().saturating_sub(counted), retry_after: wait, reset_after: until_new }
}
