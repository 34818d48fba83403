//! Random calls that aim at what goes wrong: edges of windows, waits that just end, clocks that step back, limits that
//! change under live state, refunds of a part.

mod shares;

use fastrand::Rng;
use grifo_tests::scenario::{Call, Step};
use serde_json::Value;

pub(crate) use shares::Shares;

/// Limits that replace each other under live state: every row is of one algorithm and period.
const RULES: [&[&str]; 16] = [
    &["10/min burst 5", "10/min burst 20", "7/min burst 3", "600/min burst 100", "1/min"],
    &["7/30d burst 3", "8/30d burst 3", "7/30d"],
    &["999983/h burst 7", "999983/h burst 1000000", "1000/h burst 1", "3/h", "999999999989/h burst 3000000"],
    &["1/250ms", "3/250ms burst 2", "1000/250ms burst 11"],
    &["1000000/10s burst 3", "999983/10s burst 4", "1/10s burst 2"],
    &["sliding-window 1/min", "sliding-window 10/min", "sliding-window 4/min"],
    &["sliding-window 5/10s", "sliding-window 40/10s", "sliding-window 9007199254740991/10s"],
    &["sliding-window 3/250ms", "sliding-window 2/250ms"],
    &["sliding-window 12/30d", "sliding-window 7/30d"],
    &["sliding-window-counter 10/min", "sliding-window-counter 3/min", "sliding-window-counter 100/min"],
    &["sliding-window-counter 7/10s", "sliding-window-counter 800000000/10s", "sliding-window-counter 11/10s"],
    &["sliding-window-counter 5/30d", "sliding-window-counter 3400000/30d", "sliding-window-counter 9/30d"],
    &["sliding-window-counter 1/250ms", "sliding-window-counter 4/250ms"],
    &["fixed-window 10/min", "fixed-window 4/min", "fixed-window 999999999999999/min"],
    &["fixed-window 6/10s", "fixed-window 2/10s"],
    &["fixed-window 1/250ms", "fixed-window 3/250ms"],
];
const PERIODS: [u64; 6] = [250_000, 1_000_000, 10_000_000, 60_000_000, 3_600_000_000, 2_592_000_000_000];
const START: u64 = 1_800_000_000_000_000;
const LIMITERS: [&str; 3] = ["api", "login", "a:b{c}"];
const KEYS: [&str; 5] = ["k", "user:42", "{brace}", "\u{0}nul\n", "ünïcode"];

/// Makes one random call after the other.
pub(crate) struct RandomSteps {
    random: Rng,
    now: u64,
    /// The rows of rules that each limiter uses in this round, so that its keys keep their state.
    rows: Vec<Vec<usize>>,
    /// Waits that the last answer named.
    waits: Vec<u64>,
}

impl RandomSteps {
    pub(crate) fn new(seed: u64) -> Self {
        Self { random: Rng::with_seed(seed), now: START, rows: Vec::new(), waits: Vec::new() }
    }

    /// New limiters at a new time.
    pub(crate) fn begin_round(&mut self) {
        self.now = START + self.random.u64(..PERIODS[5]);
        self.waits.clear();
        self.rows = (0..LIMITERS.len()).map(|_| self.some_rows()).collect();
    }

    fn some_rows(&mut self) -> Vec<usize> {
        let count = [1, 1, 1, 2, 2, 3, 4][self.random.usize(..7)];
        let mut rows: Vec<usize> = (0..RULES.len()).collect();
        self.random.shuffle(&mut rows);
        rows.truncate(count);
        rows
    }

    /// The next call.
    pub(crate) fn next(&mut self) -> Step {
        self.now = self.next_time();
        let op = ["check", "check", "check", "check", "check", "check", "peek", "refund", "refund", "reset"];
        let mut op = op[self.random.usize(..op.len())];
        if op == "reset" && self.random.u8(..4) > 0 {
            op = "check";
        }
        let count = [1, 1, 1, 2, 3, 6][self.random.usize(..6)];
        let mut calls: Vec<Call> = (0..count).map(|_| self.call(op)).collect();
        if self.random.u8(..6) == 0 {
            self.crowd(&mut calls);
        }
        Step { op: op.to_owned(), now: self.now, calls, results: Vec::new() }
    }

    /// Lets many ask about the same keys in one call, mostly with the same costs and Limits.
    fn crowd(&mut self, calls: &mut Vec<Call>) {
        for _ in 0..self.random.usize(1..16) {
            let mut call = calls[self.random.usize(..calls.len())].clone();
            if self.random.u8(..5) == 0 {
                call.amount = self.random.u64(..4);
            }
            calls.push(call);
        }
    }

    /// Remembers the waits that the answer names.
    pub(crate) fn learn(&mut self, step: &Step) {
        self.waits.clear();
        let limits = step.results.iter().filter_map(|result| result["limits"].as_array()).flatten();
        let times = limits.flat_map(|limit| [&limit["retry_after"], &limit["reset_after"]]);
        self.waits.extend(times.filter_map(Value::as_u64).filter(|wait| *wait > 0));
    }

    fn next_time(&mut self) -> u64 {
        let period = PERIODS[self.random.usize(..PERIODS.len())];
        match self.random.u8(..100) {
            0..=39 => self.now,
            40..=49 => self.now + self.random.u64(1..1000),
            50..=64 => self.now + self.random.u64(..period / 3),
            65..=72 => self.near((self.now / period + 1) * period),
            73..=91 if !self.waits.is_empty() => {
                let wait = self.waits[self.random.usize(..self.waits.len())];
                self.near(self.now + wait)
            }
            92..=93 => self.now + 3 * period,
            94..=96 => self.now - self.random.u64(1..2_000_000),
            97 => self.now - self.random.u64(1..PERIODS[4]),
            98 => self.now - self.random.u64(1..PERIODS[5]),
            _ => self.now + self.random.u64(..5_000_000),
        }
    }

    /// That time, or one tick of some length before or after it.
    fn near(&mut self, time: u64) -> u64 {
        let tick = [1, 10, 1000][self.random.usize(..3)];
        match self.random.u8(..5) {
            0 => time - tick,
            1 => time + tick,
            _ => time,
        }
    }

    fn call(&mut self, op: &str) -> Call {
        let limiter = self.random.usize(..LIMITERS.len());
        let limits: Vec<&str> = self.rows[limiter]
            .clone()
            .into_iter()
            .map(|row| {
                // Mostly the first: a limit that changes at every call counts little.
                let change = self.random.u8(..10) < 3;
                if change { RULES[row][self.random.usize(..RULES[row].len())] } else { RULES[row][0] }
            })
            .collect();
        let amount = match self.random.u8(..20) {
            0 => 0,
            1 => self.random.u64(..30),
            2 => self.random.u64(..1_000_000_000),
            3 if op == "refund" => u64::MAX >> 11,
            4..=8 => self.random.u64(1..5),
            _ => 1,
        };
        Call {
            limiter: LIMITERS[limiter].to_owned(),
            limits: limits.join(" + "),
            key: KEYS[self.random.usize(..KEYS.len())].to_owned(),
            amount,
        }
    }
}
