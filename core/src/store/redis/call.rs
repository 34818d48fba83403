//! A call of a script: what is asked, and of which keys.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use redis::{Cmd, Value};

use super::script::{self, Form};
use super::{arguments, readings};
use crate::error::{Error, ErrorKind};
use crate::key::StoredKeys;
use crate::limit::{Algorithm, Limit, Limits};
use crate::store::{Answers, Operation};

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

/// A call, ready to be sent, again if need be.
#[derive(Debug)]
pub(super) struct Call {
    script: AtomicUsize,
    question: Question,
}

#[derive(Debug)]
enum Question {
    Judge(Judging),
    /// How many partitions there are; and what to write where that is not recorded: how many, and how long the record is to
    /// live at least.
    Record(String, Option<(u16, Duration)>),
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

impl Call {
    pub(super) fn new(judging: Judging) -> Self {
        Self { script: judging.script().into(), question: Question::Judge(judging) }
    }

    /// Asks for the record of partitions; makes and renews it where there is something to write.
    pub(super) fn of_record(key: &str, to_write: Option<(u16, Duration)>) -> Self {
        Self { script: script::RECORD.into(), question: Question::Record(key.to_owned(), to_write) }
    }

    /// Index of the script among all.
    pub(super) fn script(&self) -> usize {
        self.script.load(Ordering::Relaxed)
    }

    /// The hash slot of its keys.
    pub(super) const fn slot(&self) -> u16 {
        match &self.question {
            Question::Judge(judging) => judging.slot,
            Question::Record(..) => 0,
        }
    }

    /// How many entries it decides.
    pub(super) const fn entries(&self) -> usize {
        match &self.question {
            Question::Judge(judging) => judging.entries.len(),
            Question::Record(..) => 0,
        }
    }

    pub(super) fn is_read_only(&self) -> bool {
        match &self.question {
            Question::Judge(judging) => judging.operation == Operation::Peek,
            Question::Record(_, to_write) => to_write.is_none(),
        }
    }

    /// Whether the script has left this to the one of every case, and done nothing.
    pub(super) fn is_left_undecided(&self, reply: &Value) -> bool {
        matches!(self.script(), script::ONE_BUCKET | script::MANY_BUCKETS) && matches!(reply, Value::Nil)
    }

    /// Leaves it to the script of every case from now on. Whether that is another.
    pub(super) fn judge_generally(&self) -> bool {
        let Question::Judge(judging) = &self.question else { return false };
        let general = script::for_limits(judging.limits());
        self.script.swap(general, Ordering::Relaxed) != general
    }

    pub(super) fn command(&self, form: Form) -> Cmd {
        let script = self.script();
        match &self.question {
            Question::Judge(judging) => match script {
                script::ONE_BUCKET => arguments::of_one_bucket(form, judging),
                script::MANY_BUCKETS => arguments::of_many_buckets(form, judging),
                script => arguments::of_entries(form, script, judging),
            },
            Question::Record(key, to_write) => arguments::of_record(form, key, *to_write),
        }
    }

    /// Reads the reply: an answer to each call of each run of each entry, in order.
    pub(super) fn parse(&self, reply: Value) -> Result<Answers, Error> {
        let Question::Judge(judging) = &self.question else { return Err(unreadable()) };
        let answers = match self.script() {
            script::ONE_BUCKET => readings::of_one_bucket(judging, reply),
            script::MANY_BUCKETS => readings::of_many_buckets(judging, reply),
            _ => readings::of_entries(judging, reply),
        };
        answers.ok_or_else(unreadable)
    }

    /// The same in calls of one entry each.
    pub(super) fn split(&self) -> Vec<Self> {
        let Question::Judge(judging) = &self.question else { return Vec::new() };
        let alone =
            |entry: &CallEntry| Self::new(Judging { entries: vec![entry.clone()], is_distinct: true, ..*judging });
        judging.entries.iter().map(alone).collect()
    }
}

impl Judging {
    fn limits(&self) -> impl Iterator<Item = &Limit> {
        self.entries.iter().flat_map(|entry| entry.limits.as_slice())
    }

    fn script(&self) -> usize {
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

fn unreadable() -> Error {
    Error::new(ErrorKind::Protocol, "the server's reply to the script is not of the expected form")
}
