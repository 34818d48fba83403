//! What is asked, in the words of each script: the twin of what `lua/*.lua` say of their KEYS and ARGV.

use std::collections::HashMap;
use std::time::Duration;

use redis::Cmd;

use super::judging::{CallEntry, Judging, Run};
use super::script::{self, Form};
use crate::algorithm::{letter, parameters};
use crate::limit::Limit;

/// About so many bytes take a stored key, and what is asked of it.
const BYTES_PER_KEY: usize = 96;
const BYTES_PER_ARGUMENT: usize = 16;

/// One run of one token bucket.
pub(super) fn of_one_bucket(form: Form, judging: &Judging) -> Cmd {
    let mut command = form.command(script::ONE_BUCKET, 8, BYTES_PER_KEY + 8 * BYTES_PER_ARGUMENT);
    command.arg(1);
    for entry in &judging.entries {
        let limit = &entry.limits.as_slice()[0];
        command.arg(entry.keys.get(0));
        match judging.now {
            Some(now) => command.arg(now),
            None => command.arg(if judging.tells_time { "?" } else { "" }),
        };
        for Run { amount, count } in entry.runs.iter() {
            let (den, period) = (limit.den(), limit.period_micros());
            command.arg(amount * limit.num()).arg(limit.full());
            let rest = [period, den, count];
            let needed = if count > 1 {
                3
            } else if den > 1 {
                2
            } else {
                usize::from(limit.full() != period)
            };
            command.arg(&rest[..needed]);
        }
    }
    command
}

/// Runs of token buckets, each with its own key.
pub(super) fn of_many_buckets(form: Form, judging: &Judging) -> Cmd {
    let entries = &judging.entries;
    let bytes = entries.len() * (BYTES_PER_KEY + BYTES_PER_ARGUMENT);
    let mut command = form.command(script::MANY_BUCKETS, 2 * entries.len() + 8, bytes);
    command.arg(entries.len());
    for entry in entries {
        command.arg(entry.keys.get(0));
    }
    push_now(&mut command, judging.now);
    for same in entries.chunk_by(|one, next| one.limits.as_slice() == next.limits.as_slice()) {
        let limit = &same[0].limits.as_slice()[0];
        command.arg(same.len()).arg(limit.num()).arg(limit.full()).arg(limit.den()).arg(limit.period_micros());
        for entry in same {
            push_costs(&mut command, entry);
        }
    }
    command
}

/// A cost; or less than nothing, how many calls, and their cost; or 0, how many such pairs, and these.
fn push_costs(command: &mut Cmd, entry: &CallEntry) {
    let mut runs = entry.runs.iter();
    match runs.next() {
        Some(Run { amount, count: 1 }) if entry.runs.len() == 1 => command.arg(amount),
        Some(Run { amount, count }) if entry.runs.len() == 1 => command.arg(-(count as i64)).arg(amount),
        _ => {
            command.arg(0).arg(entry.runs.len());
            entry.runs.iter().fold(command, |command, run| command.arg(run.count).arg(run.amount))
        }
    };
}

/// Entries of any kind.
pub(super) fn of_entries(form: Form, script: usize, judging: &Judging) -> Cmd {
    let keys = Keys::of(judging);
    let mut rules = Vec::new();
    for limit in judging.entries.iter().flat_map(|entry| entry.limits.as_slice()) {
        if !rules.contains(&limit) {
            rules.push(limit);
        }
    }
    let arguments = keys.list.len() + 6 * rules.len() + 6 * judging.entries.len() + 4;
    let bytes = keys.list.len() * BYTES_PER_KEY + arguments * BYTES_PER_ARGUMENT;
    let mut command = form.command(script, arguments, bytes);
    command.arg(keys.list.len()).arg(&keys.list);
    push_now(&mut command, judging.now);
    command.arg(judging.operation.name()).arg(rules.len());
    for rule in &rules {
        command.arg(letter(rule.algorithm())).arg(&parameters(rule));
    }
    let mut indices = keys.indices.iter();
    for entry in &judging.entries {
        push_entry(&mut command, entry, &rules, &mut indices);
    }
    command
}

fn push_entry<'a>(
    command: &mut Cmd,
    entry: &CallEntry,
    rules: &[&Limit],
    indices: &mut impl Iterator<Item = &'a usize>,
) {
    let limits = entry.limits.as_slice();
    command.arg(limits.len());
    for (limit, index) in limits.iter().zip(indices) {
        let rule = rules.iter().position(|rule| *rule == limit).unwrap_or_default();
        command.arg(index + 1).arg(rule + 1);
    }
    command.arg(entry.runs.len());
    for run in entry.runs.iter() {
        command.arg(run.amount).arg(run.count);
    }
}

/// The stored keys of a call, each once.
struct Keys<'a> {
    list: Vec<&'a [u8]>,
    /// The place in the list of the key of each Limit of each entry.
    indices: Vec<usize>,
}

impl<'a> Keys<'a> {
    fn of(judging: &'a Judging) -> Self {
        let all = judging
            .entries
            .iter()
            .flat_map(|entry| (0..entry.limits.as_slice().len()).map(|index| entry.keys.get(index)));
        if judging.is_distinct {
            let list: Vec<_> = all.collect();
            return Self { indices: (0..list.len()).collect(), list };
        }
        let mut keys = Self { list: Vec::new(), indices: Vec::new() };
        let mut known = HashMap::new();
        for key in all {
            let index = *known.entry(key).or_insert(keys.list.len());
            if index == keys.list.len() {
                keys.list.push(key);
            }
            keys.indices.push(index);
        }
        keys
    }
}

/// The record of partitions, which is made and renewed where there is something to write.
pub(super) fn of_record(form: Form, key: &str, to_write: Option<(u16, Duration)>) -> Cmd {
    let mut command = form.command(script::RECORD, 4, BYTES_PER_KEY + 2 * BYTES_PER_ARGUMENT);
    command.arg(1).arg(key);
    if let Some((partitions, time_to_live)) = to_write {
        command.arg(partitions).arg(u64::try_from(time_to_live.as_millis()).unwrap_or(u64::MAX));
    }
    command
}

fn push_now(command: &mut Cmd, now: Option<u64>) {
    match now {
        Some(now) => command.arg(now),
        None => command.arg(""),
    };
}
