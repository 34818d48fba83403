//! Token bucket, in exact rational arithmetic: the generic cell rate algorithm (ITU-T I.371) with the rate kept as a fraction.
//!
//! A token is `num` units and a tick adds `den` units, so that a bucket's state is the time at which it will be full again,
//! in whole ticks and a fraction of one in 1/den.
//!
//! Reading: whole ticks until it is full, the fraction of one, unused.

use super::{Found, Judgement, Reading, divide, narrow};
use crate::limit::{Limit, Tick};

/// When the bucket is full again, and how far ahead the Limit that wrote it lets that be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct State {
    den: u64,
    time: u64,
    fraction: u64,
    reach: u64,
    reach_fraction: u64,
    tick: Tick,
}

impl State {
    /// The state of a bucket that misses what the reading says.
    #[inline]
    fn missing([ticks, fraction, _]: Reading, limit: &Limit, now: u64) -> Self {
        let (full, den) = (limit.full(), limit.den());
        Self {
            den,
            time: limit.grain().whole(now) + ticks,
            fraction,
            reach: full / den,
            reach_fraction: full % den,
            tick: limit.grain(),
        }
    }

    #[inline]
    fn is_ahead(&self, now: u64) -> bool {
        (self.time, self.fraction) > (self.tick.whole(now) + self.reach, self.reach_fraction)
    }

    /// Whether its numbers mean what they mean under `limit`.
    #[inline]
    fn is_in_units_of(&self, limit: &Limit) -> bool {
        (self.tick, self.den) == (limit.grain(), limit.den())
    }

    /// As `limit` sees it: not ahead, and in the units of `limit`. Where those differ, a fraction counts as a whole tick, lest
    /// somebody gain by it.
    fn seen_by(mut self, limit: &Limit, now: u64) -> Self {
        heal(&mut self, now);
        if self.is_in_units_of(limit) {
            return self;
        }
        let convert =
            |ticks: u64, fraction: u64| ((ticks + u64::from(fraction > 0)) * self.tick.micros()).div_ceil(limit.tick());
        let (time, reach) = (convert(self.time, self.fraction), convert(self.reach, self.reach_fraction));
        Self { tick: limit.grain(), den: limit.den(), time, fraction: 0, reach, reach_fraction: 0 }
    }

    /// What is missing, of a state as `limit` sees it.
    #[inline]
    fn reading(&self, limit: &Limit, now: u64) -> Reading {
        match self.time.checked_sub(limit.grain().whole(now)) {
            Some(ticks) => [ticks, self.fraction, 0],
            None => [0; 3],
        }
    }
}

/// Units that are missing. May exceed `full` where a larger Limit wrote the state.
#[inline]
fn units(reading: Reading, limit: &Limit) -> u128 {
    u128::from(reading[0]) * u128::from(limit.den()) + u128::from(reading[1])
}

/// A reading from units that are missing.
#[inline]
pub(crate) fn reading_of(units: u128, limit: &Limit) -> Reading {
    let ticks = divide(units, limit.den());
    [ticks, narrow(units - u128::from(ticks) * u128::from(limit.den())), 0]
}

#[inline]
fn units_of(tokens: u64, limit: &Limit) -> u128 {
    u128::from(tokens) * u128::from(limit.num())
}

pub(super) fn later([ticks, fraction, _]: Reading, limit: &Limit, elapsed: u64) -> Reading {
    match ticks.checked_sub(elapsed.div_ceil(limit.tick())) {
        Some(ticks) => [ticks, fraction, 0],
        None => [0; 3],
    }
}

pub(super) fn before(reading: Reading, limit: &Limit, amount: u64) -> Reading {
    reading_of(units(reading, limit).saturating_sub(units_of(amount, limit)), limit)
}

#[inline(always)]
pub(super) fn judge(state: Option<&State>, limit: &Limit, now: u64, cost: u64) -> Judgement {
    let ahead = state.is_some_and(|state| state.is_ahead(now));
    let reading = match state {
        None => [0; 3],
        Some(state) if !ahead && state.is_in_units_of(limit) => state.reading(limit, now),
        Some(state) => state.seen_by(limit, now).reading(limit, now),
    };
    let passes = cost == 0 || units(reading, limit) + units_of(cost, limit) <= u128::from(limit.full());
    Judgement { passes, reading, ahead }
}

#[inline(always)]
pub(super) fn take(missing: Reading, limit: &Limit, now: u64, cost: u64) -> (State, Reading) {
    let missing = reading_of(units(missing, limit) + units_of(cost, limit), limit);
    (State::missing(missing, limit, now), missing)
}

pub(super) fn give(state: &State, limit: &Limit, now: u64, amount: u64) -> Option<State> {
    let state = state.seen_by(limit, now);
    let missing = units(state.reading(limit, now), limit);
    let left = missing.saturating_sub(units_of(amount.min(limit.capacity()), limit));
    let missing = reading_of(left, limit);
    let mut less = State::missing(missing, limit, now);
    // Rounded up to coarser ticks, the time may have passed the reach that was rounded up with it.
    let reach = (less.reach, less.reach_fraction).max((state.reach, state.reach_fraction));
    (less.reach, less.reach_fraction) = reach.max((missing[0], missing[1]));
    (left > 0).then_some(less)
}

pub(super) fn heal(state: &mut State, now: u64) {
    if state.is_ahead(now) {
        (state.time, state.fraction) = (state.tick.whole(now) + state.reach, state.reach_fraction);
    }
}

#[inline(always)]
pub(super) fn decide(reading: Reading, limit: &Limit, cost: u64) -> Found {
    let (full, missing) = (u128::from(limit.full()), units(reading, limit));
    let excess = if cost == 0 { 0 } else { (missing + units_of(cost, limit)).saturating_sub(full) };
    let ticks = |units: u128| divide(units + u128::from(limit.den() - 1), limit.den()) * limit.tick();
    Found {
        remaining: divide(full.saturating_sub(missing), limit.num()),
        retry_after: if excess == 0 { 0 } else { ticks(excess) },
        reset_after: (reading[0] + u64::from(reading[1] > 0)) * limit.tick(),
    }
}

impl State {
    pub(super) const fn as_new_at(&self) -> u64 {
        (self.time + (self.fraction > 0) as u64) * self.tick.micros()
    }

    /// As much as is missing of the time to fill it.
    pub(super) fn used(&self, now: u64) -> f64 {
        let exact = |ticks: u64, fraction: u64| ticks as f64 + fraction as f64 / self.den as f64;
        exact(self.time.saturating_sub(self.tick.whole(now)), self.fraction) / exact(self.reach, self.reach_fraction)
    }
}
