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

use super::{Answer, Entry, Operation, Pong, Store, Terms, Told};
use crate::algorithm::{self, State};
use crate::clock::Clock;
use crate::error::Error;
use crate::key::push_suffix;
use crate::limit::Limit;

const MOST_SHARDS: usize = 64;
/// A shard holds at least this many keys, so that a random few of them say something about the rest.
const LEAST_KEYS_PER_SHARD: usize = 256;
/// A list of expiries up to twice this long is left alone.
const EXPIRIES_KEPT: usize = 64;
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

    /// Like [`Store::decide_one`], without a future.
    pub(crate) fn decide_now(&self, operation: Operation, entry: &Entry<'_>, now: Option<u64>) -> Told {
        let mut shard = self.shard(entry.key);
        // Read under the lock: a thread that waited for it with an earlier time would seem to step back.
        let now = now.unwrap_or_else(|| self.clock.now());
        let (answer, healed) = shard.decide(operation, entry, now);
        Told { answer, now: Some(now), healed }
    }

    /// All Limits of one key live in one shard, so that they are decided under one lock.
    fn shard(&self, key: &[u8]) -> MutexGuard<'_, Shard> {
        let index = self.hasher.hash_one(key) as usize % self.shards.len();
        // A panic while a key is changed leaves that key as new at worst, and the others as they were.
        self.shards[index].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for MemoryStore {
    async fn decide_one(&self, terms: Terms, entry: &Entry<'_>) -> Result<Told, Error> {
        Ok(self.decide_now(terms.operation, entry, terms.now))
    }

    async fn decide(&self, terms: Terms, entries: &[Entry<'_>]) -> Vec<Result<Told, Error>> {
        entries.iter().map(|entry| Ok(self.decide_now(terms.operation, entry, terms.now))).collect()
    }

    async fn connect(&self) -> Result<(), Error> {
        Ok(())
    }

    async fn ping(&self) -> Result<Pong, Error> {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        Ok(Pong {
            server: "memory".to_owned(),
            version,
            lacking: Vec::new(),
            warnings: Vec::new(),
            round_trip: Duration::ZERO,
        })
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
        for (name, limit) in names.iter().zip(entry.limits.iter()) {
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
            for (name, limit) in names.iter().zip(entry.limits.iter()) {
                self.take(name, limit, now, cost, &names);
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

    /// `kept` are the names that belong together, of which none is let go for another.
    fn take(&mut self, name: &[u8], limit: &Limit, now: u64, cost: u64, kept: &[Vec<u8>]) {
        if let Some(slot) = self.slots.get_mut(name) {
            slot.change(limit, now, |state| algorithm::take(state, limit, now, cost));
            return;
        }
        self.make_room(now, kept);
        let name: Name = name.into();
        let state = algorithm::take(State::None, limit, now, cost);
        let as_new_at = as_new_at(&state, limit, now);
        self.expiries.push(Reverse((as_new_at, Arc::clone(&name))));
        self.slots.insert(name, Slot { state, limit: *limit, as_new_at });
        self.bound_expiries();
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

    fn make_room(&mut self, now: u64, kept: &[Vec<u8>]) {
        if self.slots.len() < self.max_keys || self.remove_expired(now) {
            return;
        }
        let may_go = |index: &usize| {
            let name = self.slots.get_index(*index).map(|(name, _)| name);
            name.is_some_and(|name| kept.iter().all(|kept| **kept != **name))
        };
        let candidates = (0..SAMPLES).map(|_| fastrand::usize(..self.slots.len())).filter(may_go);
        let order = |index: &usize| (self.slots[*index].used(now), self.slots[*index].as_new_at);
        let least_used = candidates.min_by(|one, other| {
            let ((one_used, one_new), (other_used, other_new)) = (order(one), order(other));
            one_used.total_cmp(&other_used).then(one_new.cmp(&other_new))
        });
        if let Some(index) = least_used.or_else(|| (0..self.slots.len()).find(may_go)) {
            self.slots.swap_remove_index(index);
        }
    }

    /// Drops what is said of keys that are gone, once that is most of the list.
    fn bound_expiries(&mut self) {
        if self.expiries.len() > 2 * self.slots.len().max(EXPIRIES_KEPT) {
            let expiry = |(name, slot): (&Name, &Slot)| Reverse((slot.as_new_at, Arc::clone(name)));
            self.expiries = self.slots.iter().map(expiry).collect();
        }
    }

    /// Removes a key that is as new. Whether there was one.
    fn remove_expired(&mut self, now: u64) -> bool {
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
