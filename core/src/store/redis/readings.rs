//! What the replies of each script mean: the twin of what `lua/*.lua` say of theirs. None for what is not of their form.
//!
//! Calls that share an entry are answered as if each had run alone, one after another at that instant.

use redis::Value;

use super::judging::{CallEntry, Judging, Run};
use crate::algorithm::{self, Reading, token_bucket};
use crate::limit::{Limit, MAX_LIMITS};
use crate::store::{Answer, Answers};

/// The numbers of a reply, one after another.
struct Numbers(std::vec::IntoIter<Value>);

impl Numbers {
    fn of(reply: Value) -> Option<Self> {
        if let Value::Array(values) = reply { Some(Self(values.into_iter())) } else { None }
    }

    fn signed(&mut self) -> Option<i64> {
        if let Value::Int(number) = self.0.next()? { Some(number) } else { None }
    }

    fn next(&mut self) -> Option<u64> {
        u64::try_from(self.signed()?).ok()
    }

    fn reading(&mut self) -> Option<Reading> {
        Some([self.next()?, self.next()?, self.next()?])
    }
}

fn answers(judging: &Judging, now: Option<u64>) -> Answers {
    let calls = |entry: &CallEntry| entry.runs.iter().map(|run| run.count as usize).sum::<usize>();
    Answers { now, healed: 0, list: Vec::with_capacity(judging.entries.iter().map(calls).sum()) }
}

pub(super) fn of_one_bucket(judging: &Judging, reply: Value) -> Option<Answers> {
    let (room, now) = match reply {
        Value::Int(room) => (room, judging.now),
        reply => {
            let mut numbers = Numbers::of(reply)?;
            (numbers.signed()?, Some(numbers.next()?))
        }
    };
    let mut answers = answers(judging, now);
    replay_bucket(judging.entries.first()?, room, &mut answers.list)?;
    Some(answers)
}

pub(super) fn of_many_buckets(judging: &Judging, reply: Value) -> Option<Answers> {
    let mut numbers = Numbers::of(reply)?;
    let mut answers = answers(judging, None);
    for entry in &judging.entries {
        replay_bucket(entry, numbers.signed()?, &mut answers.list)?;
    }
    (answers.now, answers.healed) = (Some(numbers.next()?), numbers.next()?);
    Some(answers)
}

/// What each call was answered, from the units that were there before the first.
fn replay_bucket(entry: &CallEntry, room: i64, answers: &mut Vec<Answer>) -> Option<()> {
    let limit = &entry.limits.as_slice()[0];
    let mut missing = u64::try_from(i64::try_from(limit.full()).ok()?.checked_sub(room)?).ok()?;
    for Run { amount, count } in entry.runs.iter() {
        let need = amount * limit.num();
        for _ in 0..count {
            let allowed = missing + need <= limit.full();
            if allowed {
                missing += need;
            }
            let mut answer = Answer { allowed, ..Answer::default() };
            answer.readings[0] = token_bucket::reading_of(missing.into(), limit);
            answers.push(answer);
        }
    }
    Some(())
}

/// Now, healed, then for each run how many of its calls are allowed, and three numbers for each Limit.
pub(super) fn of_entries(judging: &Judging, reply: Value) -> Option<Answers> {
    let mut numbers = Numbers::of(reply)?;
    let mut answers = answers(judging, Some(numbers.next()?));
    answers.healed = numbers.next()?;
    for entry in &judging.entries {
        for run in entry.runs.iter() {
            let granted = numbers.next()?;
            let mut readings = [Reading::default(); MAX_LIMITS];
            for reading in readings.iter_mut().take(entry.limits.as_slice().len()) {
                *reading = numbers.reading()?;
            }
            push_run(entry.limits.as_slice(), run, granted, readings, &mut answers.list);
        }
    }
    Some(answers)
}

/// What each call of a run was answered, from the readings after the last of those that were granted.
fn push_run(limits: &[Limit], run: Run, granted: u64, readings: [Reading; MAX_LIMITS], answers: &mut Vec<Answer>) {
    for number in 1..=run.count {
        let mut answer = Answer { allowed: number <= granted, readings };
        if number < granted || (number == granted && granted < run.count) {
            for (reading, limit) in answer.readings.iter_mut().zip(limits) {
                *reading = algorithm::before(*reading, limit, (granted - number) * run.amount);
            }
        }
        answers.push(answer);
    }
}
