//! What is asked in one call, in whatever words.

use std::sync::Arc;

use super::script;
use crate::key::StoredKeys;
use crate::limit::{Algorithm, Limit, Limits};
use crate::store::Operation;

/// The Limits of one key, and what is asked of them.
#[derive(Debug, Clone)]
pub(super) struct CallEntry {
    pub(super) keys: StoredKeys,
    pub(super) limits: Arc<Limits>,
    pub(super) runs: Runs,
}

/// So many times one amount, one after another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) amount: u64,
    pub(super) count: u64,
}

/// What is asked of one key, in order of arrival: one run as a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Runs {
    first: Run,
    more: Vec<Run>,
}

impl Runs {
    pub(super) const fn one(amount: u64) -> Self {
        Self { first: Run { amount, count: 1 }, more: Vec::new() }
    }

    pub(super) fn push(&mut self, amount: u64) {
        let last = self.more.last_mut().unwrap_or(&mut self.first);
        if last.amount == amount {
            last.count += 1;
        } else {
            self.more.push(Run { amount, count: 1 });
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Run> + Clone {
        std::iter::once(self.first).chain(self.more.iter().copied())
    }

    pub(super) fn len(&self) -> usize {
        1 + self.more.len()
    }
}

/// Entries that are decided in order, in one step.
#[derive(Debug)]
pub(super) struct Judging {
    pub(super) operation: Operation,
    /// For tests and replays; else the server's time counts.
    pub(super) now: Option<u64>,
    pub(super) entries: Vec<CallEntry>,
    /// Whether no stored key stands in it twice.
    pub(super) is_distinct: bool,
    /// Whether the answer is to tell the server's time, where that costs something.
    pub(super) tells_time: bool,
    /// In which all its keys are.
    pub(super) slot: u16,
}

impl Judging {
    pub(super) fn limits(&self) -> impl Iterator<Item = &Limit> {
        self.entries.iter().flat_map(|entry| entry.limits.as_slice())
    }

    /// Index of the script that knows all of it and as little else as can be.
    pub(super) fn script(&self) -> usize {
        let takes_from_bucket =
            |entry: &CallEntry| is_one_bucket(&entry.limits) && entry.runs.iter().all(|run| run.amount > 0);
        let is_simple =
            self.operation == Operation::Check && self.is_distinct && self.entries.iter().all(takes_from_bucket);
        match self.entries.as_slice() {
            [entry] if is_simple && entry.runs.len() == 1 => script::ONE_BUCKET,
            _ if is_simple => script::MANY_BUCKETS,
            _ => script::for_limits(self.limits()),
        }
    }
}

/// Whether they are of the commonest kind, which has scripts of its own: one bucket that counts µs, and is full after a whole
/// number of them.
pub(super) fn is_one_bucket(limits: &Limits) -> bool {
    let [limit] = limits.as_slice() else { return false };
    limit.algorithm() == Algorithm::TokenBucket && limit.tick() == 1 && limit.full() % limit.den() == 0
}
