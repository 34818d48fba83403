//! Denials that are remembered: while a call cannot pass whatever others do, it is denied here, and the store is not asked.
//!
//! Others only take. So the state that a denial has told says of any cost how long it cannot pass at least; nothing shortens
//! that but what is given back. What this client gives back, it forgets the denial for; what others do stays unseen for a
//! while that an option bounds.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hashbrown::HashTable;

use crate::algorithm::{self, Reading};
use crate::clock::microseconds;
use crate::decision::{Decision, LimitDecision, Source};
use crate::key::{KeyName, Names};
use crate::limit::{Algorithm, Limit, Limits, MAX_LIMITS};
use crate::store::{Answer, Entry};

const SHARDS: usize = 16;
/// So many keys are remembered at most, of about 200 bytes each.
const MOST_KEYS: usize = 65_536;
/// Of so many taken at random, the one that is forgotten soonest goes first.
const SAMPLES: usize = 8;
/// Where a random place is drawn, at least three in eight are taken; so many draws find enough.
const DRAWS: usize = 8 * SAMPLES;

/// What denials have told, as far as it is remembered.
#[derive(Debug)]
pub(crate) struct DenyCache {
    /// How long a denial is remembered at most.
    longest: Duration,
    names: Names,
    shards: [Mutex<Shard>; SHARDS],
    /// How many keys something is known of. A look at this is enough where nobody was denied.
    known: AtomicUsize,
}

type Shard = HashTable<Known>;

/// What is known of a key, and until when.
#[derive(Debug)]
struct Known {
    name: KeyName,
    until: Instant,
    what: What,
}

#[derive(Debug)]
enum What {
    Denied(Box<Denial>),
    /// Something was given back: a denial that was asked for earlier says nothing.
    GivenBack(Instant),
}

/// What a denial has told.
#[derive(Debug)]
struct Denial {
    limits: Arc<Limits>,
    readings: [Reading; MAX_LIMITS],
    cost: u64,
    /// When it was asked for, which is earlier than it was decided.
    since: Instant,
}

impl DenyCache {
    /// Remembers denials for so long at most; zero turns it off.
    pub(crate) fn new(longest: Duration) -> Self {
        let shards = std::array::from_fn(|_| Mutex::default());
        Self { longest, names: Names::new(), shards, known: AtomicUsize::new(0) }
    }

    pub(super) const fn is_on(&self) -> bool {
        !self.longest.is_zero()
    }

    /// The denial of a call that cannot pass, as if nobody else had taken anything since the last one.
    pub(super) fn denial(&self, entry: &Entry<'_>, now: Instant) -> Option<Decision> {
        if self.known.load(Ordering::Relaxed) == 0 || entry.amount == 0 {
            return None;
        }
        let name = self.names.of(entry.limiter, entry.key);
        let shard = self.shard(name);
        let known = find(&shard, name).filter(|known| now < known.until)?;
        match &known.what {
            What::Denied(denial) => denial.repeated(entry, now),
            What::GivenBack(_) => None,
        }
    }

    /// Remembers a denial that was asked for at a time.
    pub(super) fn remember(&self, entry: &Entry<'_>, answer: &Answer, asked: Instant) {
        let name = self.names.of(entry.limiter, entry.key);
        let mut shard = self.shard(name);
        if let Some(Known { what: What::GivenBack(at), .. }) = find(&shard, name)
            && *at >= asked
        {
            return;
        }
        let (limits, readings, cost) = (Arc::clone(entry.limits), answer.readings, entry.amount);
        let denial = Denial { limits, readings, cost, since: asked };
        self.put(&mut shard, Known { name, until: asked + self.longest, what: What::Denied(Box::new(denial)) });
    }

    /// Forgets the denials of a key to which something was given back.
    pub(super) fn forget(&self, entry: &Entry<'_>, timeout: Duration) {
        let name = self.names.of(entry.limiter, entry.key);
        let now = Instant::now();
        // Denials that were asked for before may still be on their way.
        self.put(&mut self.shard(name), Known { name, until: now + timeout, what: What::GivenBack(now) });
    }

    fn put(&self, shard: &mut Shard, known: Known) {
        let (name, hash) = (known.name, known.name.hash());
        if let Ok(mut place) = shard.find_entry(hash, |other| other.name == name) {
            *place.get_mut() = known;
            return;
        }
        if shard.len() >= MOST_KEYS / SHARDS {
            make_room(shard);
        } else {
            self.known.fetch_add(1, Ordering::Relaxed);
        }
        shard.insert_unique(hash, known, |other| other.name.hash());
    }

    fn shard(&self, name: KeyName) -> MutexGuard<'_, Shard> {
        self.shards[name.shard() % SHARDS].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn find(shard: &Shard, name: KeyName) -> Option<&Known> {
    shard.find(name.hash(), |known| known.name == name)
}

/// Lets one key go: of a few, the one that is forgotten soonest anyway.
fn make_room(shard: &mut Shard) {
    let places = shard.num_buckets();
    let until = |place: &usize| shard.get_bucket(*place).map(|known| known.until);
    let candidates = (0..DRAWS).map(|_| fastrand::usize(..places)).filter(|place| until(place).is_some());
    let soonest =
        candidates.take(SAMPLES).min_by_key(until).or_else(|| (0..places).find(|place| until(place).is_some()));
    if let Some(Ok(known)) = soonest.map(|place| shard.get_bucket_entry(place)) {
        known.remove();
    }
}

impl Denial {
    /// The denial of this call, if what is known says that it cannot pass now.
    fn repeated(&self, entry: &Entry<'_>, now: Instant) -> Option<Decision> {
        if !Arc::ptr_eq(&self.limits, entry.limits) && self.limits != *entry.limits {
            return None;
        }
        // Rounded up, lest anybody be denied too long.
        let elapsed = microseconds(now.saturating_duration_since(self.since)) + 1;
        if let ([limit], [reading, ..]) = (self.limits.as_slice(), self.readings) {
            let decision = self.decide(limit, reading, entry.amount, elapsed);
            let waits = decision.retry_after != Some(Duration::ZERO);
            return waits.then(|| Decision::of_one(decision, false, Source::DenyCache));
        }
        let decisions = self.limits.iter().zip(self.readings);
        let decisions = decisions.map(|(limit, reading)| self.decide(limit, reading, entry.amount, elapsed));
        let decision = Decision::of(decisions, false, Source::DenyCache);
        decision.denied_by.is_some().then_some(decision)
    }

    fn decide(&self, limit: &Limit, reading: Reading, cost: u64, elapsed: u64) -> LimitDecision {
        let mut reading = algorithm::later(reading, limit, elapsed);
        // A log tells when the cost passes that it was asked about, and nothing of smaller ones.
        if limit.algorithm() == Algorithm::SlidingWindow && cost < self.cost {
            reading[2] = 0;
        }
        algorithm::decide(reading, limit, cost)
    }
}
