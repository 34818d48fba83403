//! Token bucket, in exact rational arithmetic: the generic cell rate algorithm (ITU-T I.371) with the rate kept as a fraction.
//!
//! A token is `num` units and a tick adds `den` units, so that a bucket's state is the time at which it will be full again,
//! in whole ticks and a fraction of one in 1/den.
//!
//! Reading: whole ticks until it is full, the fraction of one, unused.

use super::{Found, Judgement, Reading, narrow};
use crate::limit::Limit;

/// When the bucket is full again, and how far ahead the Limit that wrote it lets that be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct State {
    tick: u64,
    den: u64,
    time: u64,
    fraction: u64,
    reach: u64,
    reach_fraction: u64,
}

impl State {
    /// The state of a bucket that misses `units`.
    fn missing(units: u128, limit: &Limit, now: u64) -> Self {
        let den = u128::from(limit.den());
        Self {
            tick: limit.tick(),
            den: limit.den(),
            time: now / limit.tick() + narrow(units / den),
            fraction: narrow(units % den),
            reach: limit.full() / limit.den(),
            reach_fraction: limit.full() % limit.den(),
        }
    }

    fn is_ahead(&self, now: u64) -> bool {
        (self.time, self.fraction) > (now / self.tick + self.reach, self.reach_fraction)
    }

    /// The same in the units of `limit`. Where those differ, a fraction counts as a whole tick, lest somebody gain by it.
    fn in_units_of(mut self, limit: &Limit) -> Self {
        if (self.tick, self.den) != (limit.tick(), limit.den()) {
            let convert =
                |ticks: u64, fraction: u64| ((ticks + u64::from(fraction > 0)) * self.tick).div_ceil(limit.tick());
            let (time, reach) = (convert(self.time, self.fraction), convert(self.reach, self.reach_fraction));
            self = Self { tick: limit.tick(), den: limit.den(), time, fraction: 0, reach, reach_fraction: 0 };
        }
        self
    }
}

/// The state as `limit` sees it: none when the bucket is full.
fn read(state: Option<&State>, limit: &Limit, now: u64) -> Option<State> {
    let mut state = *state?;
    heal(&mut state, now);
    let state = state.in_units_of(limit);
    ((state.time, state.fraction) > (now / limit.tick(), 0)).then_some(state)
}

fn reading(state: Option<State>, limit: &Limit, now: u64) -> Reading {
    state.map_or([0; 3], |state| [state.time - now / limit.tick(), state.fraction, 0])
}

/// Units that are missing. May exceed `full` where a larger Limit wrote the state.
fn units(reading: Reading, limit: &Limit) -> u128 {
    u128::from(reading[0]) * u128::from(limit.den()) + u128::from(reading[1])
}

fn units_of(tokens: u64, limit: &Limit) -> u128 {
    u128::from(tokens) * u128::from(limit.num())
}

/// The reading of a bucket that misses `units`.
pub(crate) const fn missing(units: u64, limit: &Limit) -> Reading {
    [units / limit.den(), units % limit.den(), 0]
}

pub(super) fn before(reading: Reading, limit: &Limit, amount: u64) -> Reading {
    missing(narrow(units(reading, limit).saturating_sub(units_of(amount, limit))), limit)
}

pub(super) fn judge(state: Option<&State>, limit: &Limit, now: u64, cost: u64) -> Judgement {
    let reading = reading(read(state, limit, now), limit, now);
    let passes = cost == 0 || units(reading, limit) + units_of(cost, limit) <= u128::from(limit.full());
    Judgement { passes, reading, ahead: state.is_some_and(|state| state.is_ahead(now)) }
}

pub(super) fn take(state: Option<&State>, limit: &Limit, now: u64, cost: u64) -> State {
    let missing = units(reading(read(state, limit, now), limit, now), limit);
    State::missing(missing + units_of(cost, limit), limit, now)
}

pub(super) fn give(state: &State, limit: &Limit, now: u64, amount: u64) -> Option<State> {
    let read = read(Some(state), limit, now)?;
    let missing = units(reading(Some(read), limit, now), limit);
    let left = missing.saturating_sub(units_of(amount.min(limit.capacity()), limit));
    let mut state = State::missing(left, limit, now);
    // Rounded up to coarser ticks, the time may have passed the reach that was rounded up with it.
    let missing = (state.time - now / limit.tick(), state.fraction);
    let reach = (state.reach, state.reach_fraction).max((read.reach, read.reach_fraction)).max(missing);
    (state.reach, state.reach_fraction) = reach;
    (left > 0).then_some(state)
}

pub(super) fn heal(state: &mut State, now: u64) {
    if state.is_ahead(now) {
        (state.time, state.fraction) = (now / state.tick + state.reach, state.reach_fraction);
    }
}

pub(super) fn decide(reading: Reading, limit: &Limit, cost: u64) -> Found {
    let (full, missing) = (u128::from(limit.full()), units(reading, limit));
    let ticks = |units: u128| narrow(units.div_ceil(u128::from(limit.den()))) * limit.tick();
    Found {
        remaining: narrow(full.saturating_sub(missing) / u128::from(limit.num())),
        retry_after: if cost == 0 { 0 } else { ticks((missing + units_of(cost, limit)).saturating_sub(full)) },
        reset_after: ticks(missing),
    }
}
