//! The embedded store: sharded, bounded, exact.
//!
//! Full, it lets go of keys that are as new first, then, of a few taken at random, of the one that has used the least:
//! a flood of keys does not reset a key that is used up.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use indexmap::IndexMap;

use super::{Answer, Answers, Entry, Operation, Pong, Store};
use crate::algorithm::{self, State};
use crate::clock::Clock;
use crate::error::Error;
use crate::key::push_suffix;
use crate::limit::Limit;

const MOST_SHARDS: usize = 64;
/// A shard holds at least this many keys, so that a random few of them say something about the rest.
const LEAST_KEYS_PER_SHARD: usize = 256;
/// How many keys are looked at to find one that may go.
const SAMPLES: usize = 16;
/// The embedded store.
#[derive(Debug)]
pub(crate) struct MemoryStore {
    clock: Arc<dyn Clock>,
    hasher: RandomState,
    shards: Box<[Mutex<Shard>]>,
}

impl MemoryStore {
    pub(crate) fn new(max_keys: usize, clock: Arc<dyn Clock>) -> Self {
        let most = (max_keys / LEAST_KEYS_PER_SHARD).clamp(1, MOST_SHARDS);
        let count = 1 << most.ilog2();
        let shard = |_| Mutex::new(Shard::new(max_keys.div_ceil(count).max(1)));
        Self { clock, hasher: RandomState::new(), shards: (0..count).map(shard).collect() }
    }

    /// Like [`Store::call`], without a future.
    pub(crate) fn decide(&self, operation: Operation, entries: &[Entry<'_>], now: Option<u64>) -> Answers {
        let mut answers = Answers { now: 0, healed: 0, list: Vec::with_capacity(entries.len()) };
        for entry in entries {
            let mut shard = self.shard(entry.key);
            // Read under the lock: a thread that waited for it with an earlier time would seem to step back.
            answers.now = now.unwrap_or_else(|| self.clock.now());
            let (answer, healed) = shard.decide(operation, entry, answers.now);
            answers.list.push(answer);
            answers.healed += healed;
        }
        answers
    }

    /// All Limits of one key live in one shard, so that they are decided under one lock.
    fn shard(&self, key: &[u8]) -> MutexGuard<'_, Shard> {
        let index = self.hasher.hash_one(key) as usize % self.shards.len();
        // A panic elsewhere leaves a shard as valid as before: every change is a single assignment.
        self.shards[index].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for MemoryStore {
    async fn call(&self, operation: Operation, entries: &[Entry<'_>], now: Option<u64>) -> Result<Answers, Error> {
        Ok(self.decide(operation, entries, now))
    }

    async fn connect(&self) -> Result<(), Error> {
        Ok(())
    }

    async fn ping(&self) -> Result<Pong, Error> {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        Ok(Pong { server: "memory".to_owned(), version, lacking: Vec::new(), round_trip: Duration::ZERO })
    }

    fn close(&self) {}
}

type Name = Arc<[u8]>;

/// State under one stored key.
#[derive(Debug)]
struct Slot {
    state: State,
    /// The Limit that wrote it.
    limit: Limit,
    /// When it will be as new.
    as_new_at: u64,
}

#[derive(Debug)]
struct Shard {
    slots: IndexMap<Name, Slot>,
    max_keys: usize,
    /// When each key was to be as new when it came in; a key that was used since is as new later.
    expiries: BinaryHeap<Reverse<(u64, Name)>>,
}

impl Shard {
    fn new(max_keys: usize) -> Self {
        Self { slots: IndexMap::new(), max_keys, expiries: BinaryHeap::new() }
    }

    fn decide(&mut self, operation: Operation, entry: &Entry<'_>, now: u64) -> (Answer, u64) {
        let names: Vec<Vec<u8>> = entry.limits.iter().map(|limit| name(entry, limit)).collect();
        let mut healed =
            if operation == Operation::Refund && entry.amount > 0 { self.heal(&names, entry.limits, now) } else { 0 };
        for (name, limit) in names.iter().zip(entry.limits) {
            match operation {
                Operation::Refund if entry.amount > 0 => self.give(name, limit, now, entry.amount),
                Operation::Reset => drop(self.slots.swap_remove(name.as_slice())),
                Operation::Check | Operation::Peek | Operation::Refund => {}
            }
        }
        let cost = operation.judged_cost(entry.amount);
        let (mut answer, ahead) = self.judge(&names, entry.limits, now, cost);
        if operation == Operation::Check && ahead {
            healed = self.heal(&names, entry.limits, now);
        }
        if operation == Operation::Check && answer.allowed && cost > 0 {
            for (name, limit) in names.iter().zip(entry.limits) {
                self.take(name, limit, now, cost);
            }
            answer.readings = self.judge(&names, entry.limits, now, 0).0.readings;
        }
        (answer, healed)
    }

    /// What all Limits say together, and whether the clock stepped back behind one of them.
    fn judge(&self, names: &[Vec<u8>], limits: &[Limit], now: u64, cost: u64) -> (Answer, bool) {
        let mut answer = Answer { allowed: true, ..Answer::default() };
        let mut ahead = false;
        for (index, (name, limit)) in names.iter().zip(limits).enumerate() {
            let state = self.slots.get(name.as_slice()).map_or(&State::None, |slot| &slot.state);
            let judgement = algorithm::judge(state, limit, now, cost);
            answer.allowed &= judgement.passes;
            answer.readings[index] = judgement.reading;
            ahead |= judgement.ahead;
        }
        (answer, ahead)
    }

    fn heal(&mut self, names: &[Vec<u8>], limits: &[Limit], now: u64) -> u64 {
        let mut healed = 0;
        for (name, limit) in names.iter().zip(limits) {
            if let Some(slot) = self.slots.get_mut(name.as_slice())
                && algorithm::judge(&slot.state, limit, now, 0).ahead
            {
                algorithm::heal(&mut slot.state, limit, now);
                slot.as_new_at = as_new_at(&slot.state, limit, now);
                healed += 1;
            }
        }
        healed
    }

    fn take(&mut self, name: &[u8], limit: &Limit, now: u64, cost: u64) {
        if let Some(slot) = self.slots.get_mut(name) {
            slot.change(limit, now, |state| algorithm::take(state, limit, now, cost));
            return;
        }
        self.make_room(now);
        let name: Name = name.into();
        let state = algorithm::take(State::None, limit, now, cost);
        let as_new_at = as_new_at(&state, limit, now);
        self.expiries.push(Reverse((as_new_at, Arc::clone(&name))));
        self.slots.insert(name, Slot { state, limit: *limit, as_new_at });
    }

    fn give(&mut self, name: &[u8], limit: &Limit, now: u64, amount: u64) {
        let Some(slot) = self.slots.get_mut(name) else { return };
        // Nothing counts any more, so there is nothing to give back.
        if as_new_at(&slot.state, limit, now) == now {
            return;
        }
        slot.change(limit, now, |state| algorithm::give(state, limit, now, amount));
        if matches!(slot.state, State::None) {
            self.slots.swap_remove(name);
        }
    }

    fn make_room(&mut self, now: u64) {
        if self.slots.len() < self.max_keys || self.remove_expired(now) {
            return;
        }
        let candidates = (0..SAMPLES).map(|_| fastrand::usize(..self.slots.len()));
        let least_used = candidates
            .map(|index| (self.slots[index].used(now), self.slots[index].as_new_at, index))
            .min_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
        if let Some((_, _, index)) = least_used {
            self.slots.swap_remove_index(index);
        }
    }

    /// Removes a key that is as new. Whether there was one.
    fn remove_expired(&mut self, now: u64) -> bool {
        if self.expiries.len() > 2 * self.max_keys {
            let expiry = |(name, slot): (&Name, &Slot)| Reverse((slot.as_new_at, Arc::clone(name)));
            self.expiries = self.slots.iter().map(expiry).collect();
        }
        // However many turn up that were used since: each of them was paid for by that use.
        while let Some(Reverse((expiry, _))) = self.expiries.peek()
            && *expiry <= now
        {
            let Some(Reverse((_, name))) = self.expiries.pop() else { break };
            match self.slots.get(&name).map(|slot| slot.as_new_at) {
                Some(as_new_at) if as_new_at <= now => {
                    self.slots.swap_remove(&name);
                    return true;
                }
                Some(as_new_at) => self.expiries.push(Reverse((as_new_at, name))),
                None => {}
            }
        }
        false
    }
}

impl Slot {
    fn change(&mut self, limit: &Limit, now: u64, change: impl FnOnce(State) -> State) {
        self.state = change(std::mem::take(&mut self.state));
        self.as_new_at = as_new_at(&self.state, limit, now);
        self.limit = *limit;
    }

    /// The part of the capacity that is used up.
    fn used(&self, now: u64) -> f64 {
        let reading = algorithm::judge(&self.state, &self.limit, now, 0).reading;
        let decision = algorithm::decide(reading, &self.limit, 0);
        1.0 - decision.remaining as f64 / decision.limit as f64
    }
}

fn name(entry: &Entry<'_>, limit: &Limit) -> Vec<u8> {
    let mut name = Vec::with_capacity(entry.limiter.len() + entry.key.len().min(64) + 24);
    push_suffix(&mut name, entry.limiter, limit, entry.key);
    name
}

fn as_new_at(state: &State, limit: &Limit, now: u64) -> u64 {
    let reading = algorithm::judge(state, limit, now, 0).reading;
    let reset_after = algorithm::decide(reading, limit, 0).reset_after;
    now.saturating_add(crate::clock::microseconds(reset_after))
}

#[cfg(test)]
mod tests;
