//! A call of a script: which script, its keys and arguments, and what the reply means.

use std::collections::HashMap;
use std::time::Duration;

use grifo_lua::Script;
use redis::{Cmd, Value, cmd};

use super::super::{Answer, Answers, Entry, Operation};
use crate::algorithm::{letter, parameters};
use crate::error::{Error, ErrorKind};
use crate::key::{Partitions, stored_key};
use crate::limit::Algorithm;

/// The scripts that decide.
pub(super) const JUDGES: [Script; 5] = [
    grifo_lua::LIMIT,
    grifo_lua::TOKEN_BUCKET,
    grifo_lua::SLIDING_WINDOW,
    grifo_lua::SLIDING_WINDOW_COUNTER,
    grifo_lua::FIXED_WINDOW,
];
/// Index of the script for the record of partitions, behind those that decide.
const RECORD: usize = JUDGES.len();
/// All scripts: a link counts how often it sent each.
pub(super) const COUNT: usize = JUDGES.len() + 1;

/// How a script is named to the server. The read-only forms work while the server refuses writes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Form {
    Hash,
    ReadOnlyHash,
    Source,
    ReadOnlySource,
}

/// Loads a script by running it on no key, which takes fewer rights than SCRIPT LOAD.
pub(super) fn load(script: &Script) -> Cmd {
    let mut command = cmd("EVAL");
    command.arg(script.source).arg(0).arg("0").arg(Operation::Peek.name());
    command
}

/// A call, ready to be sent, again if need be.
#[derive(Debug)]
pub(super) struct Call {
    script: usize,
    read_only: bool,
    keys: Vec<Vec<u8>>,
    arguments: Vec<Vec<u8>>,
    /// How many Limits each entry has.
    limits: Vec<usize>,
}

impl Call {
    pub(super) fn new(
        prefix: &str,
        partitions: Partitions,
        operation: Operation,
        entries: &[Entry<'_>],
        now: Option<u64>,
    ) -> Self {
        let mut call = Self {
            script: script_for(entries),
            read_only: operation == Operation::Peek,
            keys: Vec::with_capacity(entries.len()),
            arguments: Vec::with_capacity(2 + 8 * entries.len()),
            limits: entries.iter().map(|entry| entry.limits.len()).collect(),
        };
        call.arguments.push(now.map(|now| now.to_string().into_bytes()).unwrap_or_default());
        call.arguments.push(operation.name().into());
        let mut indices = HashMap::new();
        for entry in entries {
            call.push_number(entry.amount);
            call.push_number(entry.limits.len() as u64);
            for limit in entry.limits {
                let key = stored_key(prefix, partitions, entry.limiter, limit, entry.key);
                let index = call.index_of(key, &mut indices, entries.len() > 1);
                call.push_number(index);
                call.arguments.push(letter(limit.algorithm()).into());
                parameters(limit).into_iter().for_each(|parameter| call.push_number(parameter));
            }
        }
        call
    }

    /// Asks for the record of partitions; makes and renews it where there is something to write: how many there are, and how
    /// long the record lives at least.
    pub(super) fn of_record(key: &str, to_write: Option<(u16, Duration)>) -> Self {
        let number = |number: u128| number.to_string().into_bytes();
        let arguments = to_write.map(|(partitions, time_to_live)| [partitions.into(), time_to_live.as_millis()]);
        Self {
            script: RECORD,
            read_only: to_write.is_none(),
            keys: vec![key.into()],
            arguments: arguments.into_iter().flatten().map(number).collect(),
            limits: Vec::new(),
        }
    }

    /// The place of a key in KEYS, counted from 1; every key stands there once.
    fn index_of(&mut self, key: Vec<u8>, indices: &mut HashMap<Vec<u8>, u64>, may_repeat: bool) -> u64 {
        let next = self.keys.len() as u64 + 1;
        if may_repeat {
            let index = *indices.entry(key.clone()).or_insert(next);
            if index < next {
                return index;
            }
        }
        self.keys.push(key);
        next
    }

    fn push_number(&mut self, number: u64) {
        self.arguments.push(number.to_string().into_bytes());
    }

    /// Index of the script among all.
    pub(super) const fn script(&self) -> usize {
        self.script
    }

    /// How many entries it decides.
    pub(super) fn entries(&self) -> usize {
        self.limits.len()
    }

    pub(super) const fn is_read_only(&self) -> bool {
        self.read_only
    }

    pub(super) fn command(&self, form: Form) -> Cmd {
        let script = JUDGES.get(self.script).unwrap_or(&grifo_lua::PARTITIONS);
        let (name, script) = match form {
            Form::Hash => ("EVALSHA", script.sha1),
            Form::ReadOnlyHash => ("EVALSHA_RO", script.sha1),
            Form::Source => ("EVAL", script.source),
            Form::ReadOnlySource => ("EVAL_RO", script.source),
        };
        let mut command = cmd(name);
        command.arg(script).arg(self.keys.len()).arg(&self.keys).arg(&self.arguments);
        command
    }

    /// Reads the reply: now, healed, then for each entry whether it is allowed, and three numbers for each Limit.
    pub(super) fn parse(&self, value: Value) -> Result<Answers, Error> {
        let unreadable =
            || Error::new(ErrorKind::Protocol, "the server's reply to the script is not of the expected form");
        let Value::Array(values) = value else { return Err(unreadable()) };
        let mut numbers = values.into_iter().map(|value| match value {
            Value::Int(number) => u64::try_from(number).ok(),
            _ => None,
        });
        let mut next = || numbers.next().flatten().ok_or_else(unreadable);
        let mut answers = Answers { now: next()?, healed: next()?, list: Vec::with_capacity(self.limits.len()) };
        for limits in &self.limits {
            let mut answer = Answer { allowed: next()? == 1, ..Answer::default() };
            for reading in answer.readings.iter_mut().take(*limits) {
                *reading = [next()?, next()?, next()?];
            }
            answers.list.push(answer);
        }
        Ok(answers)
    }
}

/// The script that knows the algorithms of all entries.
fn script_for(entries: &[Entry<'_>]) -> usize {
    let mut algorithms = entries.iter().flat_map(|entry| entry.limits).map(|limit| limit.algorithm());
    let Some(first) = algorithms.next() else { return 0 };
    if algorithms.any(|other| other != first) {
        return 0;
    }
    match first {
        Algorithm::TokenBucket => 1,
        Algorithm::SlidingWindow => 2,
        Algorithm::SlidingWindowCounter => 3,
        Algorithm::FixedWindow => 4,
    }
}
