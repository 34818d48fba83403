//! The embedded store: sharded, bounded, exact.
//!
//! Full, it lets go of keys that are as new first, then, of a few taken at random, of the one that has used the least:
//! a flood of keys does not reset a key that is used up.

mod shard;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use self::shard::{Call, Shard};
use super::{Asked, Entry, Operation, Pong, Store, Terms, Told};
use crate::clock::Clock;
use crate::error::Error;
use crate::key::{KeyName, Names};
use crate::limit::Limit;

const MOST_SHARDS: usize = 64;
/// A shard holds at least this many keys, so that a random few of them say something about the rest.
const LEAST_KEYS_PER_SHARD: usize = 256;

/// The embedded store.
#[derive(Debug)]
pub(crate) struct MemoryStore {
    clock: Arc<dyn Clock>,
    names: Names,
    shards: Box<[Padded]>,
}

/// On cache lines of its own, so that threads in different shards do not wait for each other.
#[derive(Debug)]
#[repr(align(128))]
struct Padded(Mutex<Shard>);

impl MemoryStore {
    pub(crate) fn new(max_keys: usize, clock: Arc<dyn Clock>) -> Self {
        let most = (max_keys / LEAST_KEYS_PER_SHARD).clamp(1, MOST_SHARDS);
        let count = 1 << most.ilog2();
        let shard = |_| Padded(Mutex::new(Shard::new(max_keys.div_ceil(count).max(1))));
        Self { clock, names: Names::new(), shards: (0..count).map(shard).collect() }
    }

    /// Like [`Store::ask`], without a future, and counts it among the [decisions](Self::decisions).
    /// Allocates nothing where the key is known.
    #[inline]
    pub(crate) fn decide_now(&self, operation: Operation, entry: &Entry<'_>, now: Option<u64>) -> Told {
        self.decide_entry(operation, entry, entry.limits, now, 1)
    }

    /// The same with other Limits, and without counting it.
    pub(crate) fn decide_with(
        &self,
        operation: Operation,
        entry: &Entry<'_>,
        limits: &[Limit],
        now: Option<u64>,
    ) -> Told {
        self.decide_entry(operation, entry, limits, now, 0)
    }

    #[inline(always)]
    fn decide_entry(
        &self,
        operation: Operation,
        entry: &Entry<'_>,
        limits: &[Limit],
        now: Option<u64>,
        counts: u64,
    ) -> Told {
        let key = self.names.of(entry.limiter, entry.key);
        let mut shard = self.shard(key);
        shard.count(counts);
        // Read under the lock: a thread that waited for it with an earlier time would seem to step back.
        let now = now.unwrap_or_else(|| self.clock.now());
        shard.decide(operation, &Call { key, limits, amount: entry.amount, now })
    }

    /// How many entries were decided one by one so far.
    pub(crate) fn decisions(&self) -> u64 {
        self.shards.iter().map(|shard| lock(shard).decisions()).sum()
    }

    /// All Limits of one key live in one shard, so that they are decided under one lock.
    fn shard(&self, key: KeyName) -> MutexGuard<'_, Shard> {
        // Their number is a power of two.
        lock(&self.shards[key.shard() & (self.shards.len() - 1)])
    }
}

fn lock(shard: &Padded) -> MutexGuard<'_, Shard> {
    // A panic while a key is changed leaves that key as new at worst, and the others as they were.
    shard.0.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Store for MemoryStore {
    fn ask<'a>(&'a self, terms: Terms, entry: &'a Entry<'a>) -> Result<Asked<'a>, Error> {
        let told = self.decide_with(terms.operation, entry, entry.limits, terms.now);
        Ok(Asked::Begun(Box::pin(std::future::ready(Ok(told)))))
    }

    async fn decide(&self, terms: Terms, entries: &[Entry<'_>]) -> Vec<Result<Told, Error>> {
        entries.iter().map(|entry| Ok(self.decide_with(terms.operation, entry, entry.limits, terms.now))).collect()
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

#[cfg(test)]
mod tests;
