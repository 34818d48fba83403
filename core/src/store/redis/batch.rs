//! Who waits for a node, and who of them goes out together.
//!
//! Checks that arrive while others are in flight wait in the lane of their partition, and leave together as soon as a flight
//! has room: no timer delays anybody. Callers of one key share one entry of the call, in order of arrival.
//!
//! Bounded: so many callers wait for a node, so much is asked in one call, and so many calls leave in one write.

use std::collections::VecDeque;
use std::collections::hash_map::{self, HashMap};
use std::sync::Arc;

use tokio::time::Instant;

use super::call::{Call, CallEntry, Judging, Runs};
use crate::key::{Partitions, StoredKeys, identity};
use crate::limit::{Algorithm, Limits};
use crate::store::{Entry, Operation, Terms};

/// Callers beyond so many are turned away.
const MOST_WAITING: usize = 65_536;
/// What a call may weigh. A run of a bucket alone in its limiter weighs 1, which is about 3 µs of the server's time, so that a
/// call stays below 150 µs.
const HEAVIEST_CALL: usize = 48;
/// Limits that are judged by the script of every case weigh so much each.
const GENERAL_WEIGHT: usize = 3;
/// So many callers share an entry, and so many lanes a write.
const MOST_SHARING: usize = 4096;
const MOST_CALLS_PER_WRITE: usize = 32;

/// What a caller asks.
#[derive(Debug)]
pub(super) struct Demand {
    /// The partition, where calls of different partitions cannot be one; else 0.
    pub(super) lane: usize,
    pub(super) slot: u16,
    /// Of limiter and key.
    pub(super) identity: u64,
    pub(super) operation: Operation,
    pub(super) now: Option<u64>,
    pub(super) keys: StoredKeys,
    pub(super) limits: Arc<Limits>,
    pub(super) amount: u64,
    pub(super) deadline: Instant,
}

impl Demand {
    pub(super) fn new(prefix: &str, partitions: Partitions, lane: usize, terms: Terms, entry: &Entry<'_>) -> Self {
        Self {
            lane,
            slot: partitions.slot(lane),
            identity: identity(entry.limiter, entry.key),
            operation: terms.operation,
            now: terms.now,
            keys: StoredKeys::new(prefix, partitions, entry.limiter, entry.limits, entry.key),
            limits: Arc::clone(entry.limits),
            amount: entry.amount,
            deadline: terms.deadline,
        }
    }

    /// The call that asks this alone.
    pub(super) fn into_call(self, tells_time: bool) -> Call {
        let entry = CallEntry { keys: self.keys, limits: self.limits, runs: Runs::one(self.amount) };
        Call::new(Judging {
            operation: self.operation,
            now: self.now,
            entries: vec![entry],
            is_distinct: true,
            tells_time,
        })
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
    identity: u64,
    operation: Operation,
    now: Option<u64>,
    keys: StoredKeys,
    limits: Arc<Limits>,
    waiters: Vec<Waiter<R>>,
    /// How often the amount changes from one caller to the next.
    changes: usize,
    /// Whether others of this identity were waiting in front of it.
    is_repeated: bool,
}

/// A call, and those who wait for its answers, in order.
#[derive(Debug)]
pub(super) struct Batch<R> {
    pub(super) call: Call,
    pub(super) slot: u16,
    pub(super) waiters: Vec<Waiter<R>>,
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
    /// The number of the last group of each identity.
    last_of: HashMap<u64, u64>,
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

    /// Puts a caller in line; gives the reply back where there are too many already.
    pub(super) fn push(&mut self, demand: Demand, reply: R) -> Result<(), R> {
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
        lane.push(demand, reply);
        Ok(())
    }

    /// Who goes out next, in one write: of each lane as many as make a call. Those who are gone by now stay behind.
    pub(super) fn take(&mut self, is_gone: impl Fn(&Waiter<R>) -> bool) -> Vec<Vec<Group<R>>> {
        let mut calls = Vec::new();
        for _ in 0..self.ready.len() {
            let Some(index) = self.ready.pop_front().filter(|_| calls.len() < MOST_CALLS_PER_WRITE) else { break };
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
        Self { groups: VecDeque::new(), first: 0, last_of: HashMap::new() }
    }

    fn push(&mut self, demand: Demand, reply: R) {
        let waiter = Waiter { amount: demand.amount, deadline: demand.deadline, reply };
        let next = self.first + self.groups.len() as u64;
        let is_repeated = match self.last_of.entry(demand.identity) {
            hash_map::Entry::Occupied(mut last) => {
                let group = (*last.get() - self.first) as usize;
                if let Some(group) = self.groups.get_mut(group).filter(|group| group.may_be_joined_by(&demand)) {
                    return group.join(waiter);
                }
                last.insert(next);
                true
            }
            hash_map::Entry::Vacant(last) => {
                last.insert(next);
                false
            }
        };
        self.groups.push_back(Group::new(demand, waiter, is_repeated));
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
            if self.last_of.get(&group.identity) == Some(&self.first) {
                self.last_of.remove(&group.identity);
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
    fn new(demand: Demand, waiter: Waiter<R>, is_repeated: bool) -> Self {
        Self {
            slot: demand.slot,
            identity: demand.identity,
            operation: demand.operation,
            now: demand.now,
            keys: demand.keys,
            limits: demand.limits,
            waiters: vec![waiter],
            changes: 0,
            is_repeated,
        }
    }

    /// When the last of its callers gives up.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.waiters.iter().map(|waiter| waiter.deadline).max()
    }

    fn may_be_joined_by(&self, demand: &Demand) -> bool {
        self.operation == Operation::Check
            && demand.operation == Operation::Check
            && self.now == demand.now
            && self.slot == demand.slot
            && self.waiters.len() < MOST_SHARING
            && self.changes < HEAVIEST_CALL / GENERAL_WEIGHT
            && (Arc::ptr_eq(&self.limits, &demand.limits) || self.limits == demand.limits)
            && self.keys == demand.keys
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
        let limit = match self.limits.as_slice() {
            [limit] if limit.algorithm() == Algorithm::TokenBucket => 1,
            limits => GENERAL_WEIGHT * limits.len(),
        };
        limit * (1 + self.changes)
    }
}

impl<R> Batch<R> {
    /// When the last of its callers gives up.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.waiters.iter().map(|waiter| waiter.deadline).max()
    }

    /// The call of some groups that go out together.
    pub(super) fn of(groups: Vec<Group<R>>) -> Option<Self> {
        let first = groups.first()?;
        let (slot, operation, now) = (first.slot, first.operation, first.now);
        let is_distinct = !groups.iter().any(|group| group.is_repeated);
        let mut waiters = Vec::with_capacity(groups.iter().map(|group| group.waiters.len()).sum());
        let entry = |mut group: Group<R>| {
            let mut amounts = group.waiters.iter().map(|waiter| waiter.amount);
            let mut runs = Runs::one(amounts.next().unwrap_or_default());
            amounts.for_each(|amount| runs.push(amount));
            waiters.append(&mut group.waiters);
            CallEntry { keys: group.keys, limits: group.limits, runs }
        };
        let entries = groups.into_iter().map(entry).collect();
        Some(Self {
            call: Call::new(Judging { operation, now, entries, is_distinct, tells_time: true }),
            slot,
            waiters,
        })
    }
}
