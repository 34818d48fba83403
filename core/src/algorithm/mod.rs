//! The algorithms as they run in process: the twins of the scripts in `lua/`.
//!
//! A store reads, judges and charges; what it found comes back as a [`Reading`] of each Limit. [`decide`] turns readings
//! into a [`LimitDecision`], whichever store they came from, so that two stores cannot differ in it.

mod fixed_window;
mod sliding_window;
mod sliding_window_counter;
pub(crate) mod token_bucket;

use std::time::Duration;

use crate::decision::LimitDecision;
use crate::limit::{Algorithm, Limit};

/// Three numbers that say all about one Limit of one key; each algorithm knows what its own mean.
pub(crate) type Reading = [u64; 3];

/// What one key has used up under one algorithm and period.
#[derive(Debug, Clone, Default)]
pub(crate) enum State {
    /// Nothing: as new.
    #[default]
    None,
    TokenBucket(token_bucket::State),
    /// Boxed, so that a state of any kind is small.
    SlidingWindow(Box<sliding_window::State>),
    SlidingWindowCounter(sliding_window_counter::State),
    FixedWindow(fixed_window::State),
}

impl State {
    fn as_token_bucket(&self) -> Option<&token_bucket::State> {
        if let Self::TokenBucket(state) = self { Some(state) } else { None }
    }

    fn as_sliding_window(&self) -> Option<&sliding_window::State> {
        if let Self::SlidingWindow(state) = self { Some(state) } else { None }
    }

    fn as_sliding_window_counter(&self) -> Option<&sliding_window_counter::State> {
        if let Self::SlidingWindowCounter(state) = self { Some(state) } else { None }
    }

    fn as_fixed_window(&self) -> Option<&fixed_window::State> {
        if let Self::FixedWindow(state) = self { Some(state) } else { None }
    }

    /// When it will be as new, in microseconds since the epoch, if the clock does not step back.
    pub(crate) fn as_new_at(&self) -> u64 {
        match self {
            Self::None => 0,
            Self::TokenBucket(state) => state.as_new_at(),
            Self::SlidingWindow(state) => state.as_new_at(),
            Self::SlidingWindowCounter(state) => state.as_new_at(),
            Self::FixedWindow(state) => state.as_new_at(),
        }
    }

    /// The part of the capacity that is used up.
    pub(crate) fn used(&self, now: u64) -> f64 {
        match self {
            Self::None => 0.0,
            Self::TokenBucket(state) => state.used(now),
            Self::SlidingWindow(state) => state.used(now),
            Self::SlidingWindowCounter(state) => state.used(now),
            Self::FixedWindow(state) => state.used(now),
        }
    }
}

/// What an algorithm says of a key before anything is taken.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Judgement {
    pub(crate) passes: bool,
    pub(crate) reading: Reading,
    /// Its times are further ahead of the clock than they can be: the clock stepped back.
    pub(crate) ahead: bool,
}

/// The letter that names the algorithm in stored keys and in calls of the scripts. Never given to another.
pub(crate) const fn letter(algorithm: Algorithm) -> &'static str {
    match algorithm {
        Algorithm::TokenBucket => "t",
        Algorithm::SlidingWindow => "l",
        Algorithm::SlidingWindowCounter => "c",
        Algorithm::FixedWindow => "f",
    }
}

/// The five numbers that the script of the algorithm wants of a Limit.
pub(crate) const fn parameters(limit: &Limit) -> [u64; 5] {
    match limit.algorithm() {
        Algorithm::TokenBucket => [limit.num(), limit.den(), limit.full(), limit.tick(), limit.period_micros()],
        Algorithm::SlidingWindow | Algorithm::FixedWindow => [limit.count(), limit.period_micros(), 0, 1, 0],
        Algorithm::SlidingWindowCounter => [limit.count(), limit.period_ticks(), 0, limit.tick(), 0],
    }
}

/// What a reading becomes in so many microseconds, rather more than fewer, if nothing is taken. What it cannot tell stays.
pub(crate) fn later(reading: Reading, limit: &Limit, elapsed: u64) -> Reading {
    match limit.algorithm() {
        Algorithm::TokenBucket => token_bucket::later(reading, limit, elapsed),
        Algorithm::SlidingWindow => sliding_window::later(reading, elapsed),
        Algorithm::SlidingWindowCounter => sliding_window_counter::later(reading, limit, elapsed),
        Algorithm::FixedWindow => fixed_window::later(reading, limit, elapsed),
    }
}

/// What a reading was before the last `amount` was taken, at the same instant.
pub(crate) fn before(reading: Reading, limit: &Limit, amount: u64) -> Reading {
    match limit.algorithm() {
        Algorithm::TokenBucket => token_bucket::before(reading, limit, amount),
        Algorithm::SlidingWindow => [reading[0].saturating_sub(amount), reading[1], 0],
        Algorithm::SlidingWindowCounter | Algorithm::FixedWindow => {
            [reading[0].saturating_sub(amount), reading[1], reading[2]]
        }
    }
}

/// Judges a call of `cost` at `now` (microseconds since the epoch).
#[inline(always)]
pub(crate) fn judge(state: &State, limit: &Limit, now: u64, cost: u64) -> Judgement {
    match limit.algorithm() {
        Algorithm::TokenBucket => token_bucket::judge(state.as_token_bucket(), limit, now, cost),
        Algorithm::SlidingWindow => sliding_window::judge(state.as_sliding_window(), limit, now, cost),
        Algorithm::SlidingWindowCounter => {
            sliding_window_counter::judge(state.as_sliding_window_counter(), limit, now, cost)
        }
        Algorithm::FixedWindow => fixed_window::judge(state.as_fixed_window(), limit, now, cost),
    }
}

/// Charges a call that was judged to pass, with the reading of that judgement. What is left after it comes back.
/// `cost` is at least 1.
#[inline(always)]
pub(crate) fn take(state: &mut State, judged: Reading, limit: &Limit, now: u64, cost: u64) -> Reading {
    match limit.algorithm() {
        Algorithm::TokenBucket => {
            let (bucket, left) = token_bucket::take(judged, limit, now, cost);
            *state = State::TokenBucket(bucket);
            left
        }
        Algorithm::SlidingWindow => {
            if let State::SlidingWindow(log) = state {
                return sliding_window::take(log, limit, now, cost);
            }
            let (log, left) = sliding_window::begin(limit, now, cost);
            *state = State::SlidingWindow(Box::new(log));
            left
        }
        Algorithm::SlidingWindowCounter => {
            let (counters, left) = sliding_window_counter::take(judged, limit, now, cost);
            *state = State::SlidingWindowCounter(counters);
            left
        }
        Algorithm::FixedWindow => {
            let (window, left) = fixed_window::take(judged, limit, now, cost);
            *state = State::FixedWindow(window);
            left
        }
    }
}

/// Gives back up to `amount` of what was taken.
pub(crate) fn give(state: &mut State, limit: &Limit, now: u64, amount: u64) {
    let left = match state {
        State::None => None,
        State::TokenBucket(state) => token_bucket::give(state, limit, now, amount).map(State::TokenBucket),
        State::SlidingWindow(log) => {
            if sliding_window::give(log, limit, now, amount) {
                return;
            }
            None
        }
        State::SlidingWindowCounter(state) => {
            sliding_window_counter::give(state, limit, now, amount).map(State::SlidingWindowCounter)
        }
        State::FixedWindow(state) => fixed_window::give(state, limit, now, amount).map(State::FixedWindow),
    };
    *state = left.unwrap_or_default();
}

/// Cuts times that are further ahead of the clock than they can be.
pub(crate) fn heal(state: &mut State, limit: &Limit, now: u64) {
    match state {
        State::None => {}
        State::TokenBucket(state) => token_bucket::heal(state, now),
        State::SlidingWindow(state) => sliding_window::heal(state, now),
        State::SlidingWindowCounter(state) => sliding_window_counter::heal(state, limit, now),
        State::FixedWindow(state) => fixed_window::heal(state, limit, now),
    }
}

/// What a reading means for a call of `cost`.
#[inline(always)]
pub(crate) fn decide(reading: Reading, limit: &Limit, cost: u64) -> LimitDecision {
    let found = match limit.algorithm() {
        Algorithm::TokenBucket => token_bucket::decide(reading, limit, cost),
        Algorithm::SlidingWindow => sliding_window::decide(reading, limit),
        Algorithm::SlidingWindowCounter => sliding_window_counter::decide(reading, limit, cost),
        Algorithm::FixedWindow => fixed_window::decide(reading, limit, cost),
    };
    LimitDecision {
        limit: limit.capacity(),
        remaining: found.remaining,
        retry_after: Some(Duration::from_micros(found.retry_after)),
        reset_after: Duration::from_micros(found.reset_after),
    }
}

/// Whether a reading is that of a key of which nothing is used up.
pub(crate) fn is_new(reading: Reading, limit: &Limit) -> bool {
    decide(reading, limit, 0).reset_after.is_zero()
}

/// What each algorithm makes of its reading; times in microseconds.
#[derive(Debug, Clone, Copy, Default)]
struct Found {
    remaining: u64,
    retry_after: u64,
    reset_after: u64,
}

/// A product or a sum of times, of which no Limit that was accepted exceeds a u64.
#[inline]
fn narrow(wide: u128) -> u64 {
    u64::try_from(wide).unwrap_or(u64::MAX)
}

/// A quotient, of which the same holds. Nearly always the dividend is narrow too, and the division fast.
#[inline]
fn divide(wide: u128, by: u64) -> u64 {
    match u64::try_from(wide) {
        Ok(narrow) => narrow / by,
        Err(_) => narrow(wide / u128::from(by)),
    }
}
