//! A call of a script: what is asked, and of which keys.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use redis::{Cmd, Value};

use super::judging::{CallEntry, Judging};
use super::script::{self, Form};
use super::{arguments, readings};
use crate::error::{Error, ErrorKind};
use crate::store::{Answers, Operation};

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

fn unreadable() -> Error {
    Error::new(ErrorKind::Protocol, "the server's reply to the script is not of the expected form")
}
