//! Who waits for a node, and who of them goes out together.
//!
//! Checks that arrive while others are in flight wait in the lane of their partition, and leave together as soon as a flight
//! has room: no timer delays anybody. Callers of one key share one entry of the call, in order of arrival.
//!
//! Bounded: so many callers wait for a node, so much is asked in one call, and so many calls leave in one write.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use tokio::time::Instant;

use super::call::Call;
use super::judging::{CallEntry, Judging, Runs, is_one_bucket};
use crate::key::{KeyHash, KeyName, Names, Partitions, StoredKeys};
use crate::limit::Limits;
use crate::store::{Entry, Operation, Terms};

/// Callers beyond so many are turned away.
const MOST_WAITING: usize = 65_536;
/// What a call may weigh. A run of a bucket alone in its limiter weighs 1, which is about 3 µs of the server's time, so that a
/// call stays below 150 µs.
const HEAVIEST_CALL: usize = 48;
/// Limits that are judged by the script of every case weigh so much each.
const GENERAL_WEIGHT: usize = 3;
/// So many callers share an entry.
const MOST_SHARING: usize = 4096;
/// So many lanes leave in one write.
const MOST_CALLS_PER_WRITE: usize = 32;

/// What a caller asks. The names that it is stored under are made only where nobody else has made them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Demand<'a> {
    prefix: &'a str,
    partitions: Partitions,
    hash: KeyHash,
    /// Of limiter and key.
    name: KeyName,
    /// The partition, where calls of different partitions cannot be one; else 0.
    lane: usize,
    terms: Terms,
    entry: Entry<'a>,
}

impl<'a> Demand<'a> {
    /// Of entries in lanes by partition, or else in one lane.
    pub(super) fn new(
        keyspace: &'a Keyspace,
        partitions: Partitions,
        has_slots: bool,
        terms: Terms,
        entry: &Entry<'a>,
    ) -> Self {
        let hash = KeyHash::of(entry.key);
        let lane = if has_slots { partitions.of(hash) } else { 0 };
        let name = keyspace.names.of(entry.limiter, entry.key);
        Self { prefix: &keyspace.prefix, partitions, hash, name, lane, terms, entry: *entry }
    }

    pub(super) const fn deadline(&self) -> Instant {
        self.terms.deadline
    }

    pub(super) fn asked(&self) -> Instant {
        Instant::from_std(self.terms.asked)
    }

    /// The hash slot of its keys.
    pub(super) const fn slot(&self) -> u16 {
        self.partitions.slot(self.lane)
    }

    pub(super) fn keys(&self) -> StoredKeys {
        let Entry { limiter, limits, key, .. } = self.entry;
        StoredKeys::new(self.prefix, self.partitions, self.hash, limiter, limits, key)
    }

    /// The call that asks this alone.
    pub(super) fn call(&self, tells_time: bool) -> Call {
        let runs = Runs::one(self.entry.amount);
        let entry = CallEntry { keys: self.keys(), limits: Arc::clone(self.entry.limits), runs };
        Call::new(Judging {
            operation: self.terms.operation,
            now: self.terms.now,
            entries: vec![entry],
            is_distinct: true,
            tells_time,
            slot: self.slot(),
        })
    }
}

/// Under which names a store keeps its keys, and by which this process tells them apart.
#[derive(Debug)]
pub(super) struct Keyspace {
    prefix: String,
    names: Names,
}

impl Keyspace {
    pub(super) fn new(prefix: String) -> Self {
        Self { prefix, names: Names::new() }
    }

    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }
}

/// A caller who waits.
#[derive(Debug)]
pub(super) struct Waiter<R> {
    amount: u64,
    pub(super) deadline: Instant,
    /// Where the answer goes.
    pub(super) reply: R,
}

/// Callers of one key and the same Limits, with nothing in between them.
#[derive(Debug)]
pub(super) struct Group<R> {
    slot: u16,
    name: KeyName,
    operation: Operation,
    now: Option<u64>,
    keys: StoredKeys,
    limits: Arc<Limits>,
    waiters: Vec<Waiter<R>>,
    /// How often the amount changes from one caller to the next.
    changes: usize,
    /// Whether others of this name were waiting in front of it.
    is_repeated: bool,
}

/// A call, and those who wait for its answers, in order.
#[derive(Debug)]
pub(super) struct Batch<R> {
    pub(super) call: Call,
    pub(super) waiting: Vec<Waiter<R>>,
}

/// Names are hashes already, of a secret.
#[derive(Debug, Default)]
struct AsIs(u64);

impl Hasher for AsIs {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = self.0.rotate_left(8) ^ u64::from(*byte));
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// All who wait for one node.
#[derive(Debug)]
pub(super) struct Batches<R> {
    lanes: Vec<Lane<R>>,
    /// Lanes in which somebody waits, the longest waiting first.
    ready: VecDeque<usize>,
    waiting: usize,
}

#[derive(Debug)]
struct Lane<R> {
    groups: VecDeque<Group<R>>,
    /// Number of the first group.
    first: u64,
    /// The number of the last group of each name.
    last_of: HashMap<KeyName, u64, BuildHasherDefault<AsIs>>,
}

impl<R> Default for Batches<R> {
    fn default() -> Self {
        Self { lanes: Vec::new(), ready: VecDeque::new(), waiting: 0 }
    }
}

impl<R> Batches<R> {
    pub(super) fn is_empty(&self) -> bool {
        self.ready.is_empty()
    }

    /// Lets a caller share the entry of others who wait for the same. Gives the reply back where there are none.
    pub(super) fn join(&mut self, demand: &Demand<'_>, reply: R) -> Result<(), R> {
        let lane = self.lanes.get_mut(demand.lane).filter(|_| self.waiting < MOST_WAITING);
        let Some(group) = lane.and_then(|lane| lane.group_for(demand)) else { return Err(reply) };
        group.join(Waiter { amount: demand.entry.amount, deadline: demand.terms.deadline, reply });
        self.waiting += 1;
        Ok(())
    }

    /// Puts a caller in line, with the names of his keys; gives the reply back where there are too many already.
    pub(super) fn push(&mut self, demand: &Demand<'_>, keys: StoredKeys, reply: R) -> Result<(), R> {
        let reply = match self.join(demand, reply) {
            Ok(()) => return Ok(()),
            Err(reply) => reply,
        };
        if self.waiting >= MOST_WAITING {
            return Err(reply);
        }
        self.waiting += 1;
        let index = demand.lane;
        if index >= self.lanes.len() {
            self.lanes.resize_with(index + 1, Lane::new);
        }
        let lane = &mut self.lanes[index];
        if lane.groups.is_empty() {
            self.ready.push_back(index);
        }
        lane.push(demand, keys, reply);
        Ok(())
    }

    /// Who goes out next, in one write: of each lane as many as make a call. Those who are gone by now stay behind.
    pub(super) fn take(&mut self, is_gone: impl Fn(&Waiter<R>) -> bool) -> Vec<Vec<Group<R>>> {
        let mut calls = Vec::new();
        for _ in 0..self.ready.len() {
            if calls.len() == MOST_CALLS_PER_WRITE {
                break;
            }
            let Some(index) = self.ready.pop_front() else { break };
            let lane = &mut self.lanes[index];
            let (groups, taken) = lane.take(&is_gone);
            self.waiting -= taken;
            if !lane.groups.is_empty() {
                self.ready.push_back(index);
            }
            if !groups.is_empty() {
                calls.push(groups);
            }
        }
        calls
    }

    /// Sends everybody away.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = R> + use<R> {
        let lanes = std::mem::take(&mut self.lanes);
        self.ready.clear();
        self.waiting = 0;
        lanes.into_iter().flat_map(|lane| lane.groups).flat_map(|group| group.waiters).map(|waiter| waiter.reply)
    }
}

impl<R> Lane<R> {
    fn new() -> Self {
        Self { groups: VecDeque::new(), first: 0, last_of: HashMap::default() }
    }

    /// The last group of those who wait for a key, if it may be shared.
    fn group_for(&mut self, demand: &Demand<'_>) -> Option<&mut Group<R>> {
        let last = self.last_of.get(&demand.name)?;
        let group = self.groups.get_mut((last - self.first) as usize)?;
        group.may_be_joined_by(demand).then_some(group)
    }

    fn push(&mut self, demand: &Demand<'_>, keys: StoredKeys, reply: R) {
        let waiter = Waiter { amount: demand.entry.amount, deadline: demand.terms.deadline, reply };
        let next = self.first + self.groups.len() as u64;
        let is_repeated = self.last_of.insert(demand.name, next).is_some();
        self.groups.push_back(Group::new(demand, keys, waiter, is_repeated));
    }

    /// The groups of the next call, and how many callers have left the lane.
    fn take(&mut self, is_gone: impl Fn(&Waiter<R>) -> bool) -> (Vec<Group<R>>, usize) {
        let (mut taken, mut left, mut weight) = (Vec::new(), 0, 0);
        while let Some(group) = self.groups.front() {
            let fits = weight + group.weight() <= HEAVIEST_CALL;
            if taken.last().is_some_and(|last| !fits || !group.may_share_a_call_with(last)) {
                break;
            }
            let Some(mut group) = self.groups.pop_front() else { break };
            if self.last_of.get(&group.name) == Some(&self.first) {
                self.last_of.remove(&group.name);
            }
            self.first += 1;
            left += group.waiters.len();
            group.waiters.retain(|waiter| !is_gone(waiter));
            if !group.waiters.is_empty() {
                weight += group.weight();
                taken.push(group);
            }
        }
        (taken, left)
    }
}

impl<R> Group<R> {
    fn new(demand: &Demand<'_>, keys: StoredKeys, waiter: Waiter<R>, is_repeated: bool) -> Self {
        Self {
            slot: demand.slot(),
            name: demand.name,
            operation: demand.terms.operation,
            now: demand.terms.now,
            keys,
            limits: Arc::clone(demand.entry.limits),
            waiters: vec![waiter],
            changes: 0,
            is_repeated,
        }
    }

    /// When the last of its callers gives up.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.waiters.iter().map(|waiter| waiter.deadline).max()
    }

    fn may_be_joined_by(&self, demand: &Demand<'_>) -> bool {
        let limits = demand.entry.limits;
        self.operation == Operation::Check
            && demand.terms.operation == Operation::Check
            && self.now == demand.terms.now
            && self.slot == demand.slot()
            && self.waiters.len() < MOST_SHARING
            && self.changes < HEAVIEST_CALL / GENERAL_WEIGHT
            && (Arc::ptr_eq(&self.limits, limits) || self.limits == *limits)
    }

    fn may_share_a_call_with(&self, other: &Self) -> bool {
        (self.operation, self.now, self.slot) == (other.operation, other.now, other.slot)
    }

    fn join(&mut self, waiter: Waiter<R>) {
        let last = self.waiters.last().map(|last| last.amount);
        self.changes += usize::from(last != Some(waiter.amount));
        self.waiters.push(waiter);
    }

    fn weight(&self) -> usize {
        let run = if is_one_bucket(&self.limits) { 1 } else { GENERAL_WEIGHT * self.limits.as_slice().len() };
        run * (1 + self.changes)
    }
}

impl<R> Batch<R> {
    /// When the last of its callers gives up.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.waiting.iter().map(|waiter| waiter.deadline).max()
    }

    /// The call of some groups that go out together.
    pub(super) fn of(groups: Vec<Group<R>>) -> Option<Self> {
        let first = groups.first()?;
        let (slot, operation, now) = (first.slot, first.operation, first.now);
        let is_distinct = !groups.iter().any(|group| group.is_repeated);
        let mut waiting = Vec::with_capacity(groups.iter().map(|group| group.waiters.len()).sum());
        let entry = |mut group: Group<R>| {
            let mut amounts = group.waiters.iter().map(|waiter| waiter.amount);
            let mut runs = Runs::one(amounts.next().unwrap_or_default());
            amounts.for_each(|amount| runs.push(amount));
            waiting.append(&mut group.waiters);
            CallEntry { keys: group.keys, limits: group.limits, runs }
        };
        let entries = groups.into_iter().map(entry).collect();
        let judging = Judging { operation, now, entries, is_distinct, tells_time: true, slot };
        Some(Self { call: Call::new(judging), waiting })
    }
}

#[cfg(test)]
pub(super) mod tests;
