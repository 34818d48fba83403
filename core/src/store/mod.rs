//! Where state lives. A new store is one file that implements [`Store`], and an arm of [`AnyStore`].

pub(crate) mod memory;
pub(crate) mod redis;

use std::future::Future;
use std::sync::Arc;
use std::time::Instant as StdInstant;

use futures_util::future::BoxFuture;
use tokio::time::Instant;

use crate::algorithm::{self, Reading};
use crate::decision::{Decision, Source};
use crate::error::Error;
use crate::limit::{Limit, Limits, MAX_LIMITS};

/// What a call does to its keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    Check,
    Peek,
    Refund,
    Reset,
}

impl Operation {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Check => "check",
            Self::Peek => "peek",
            Self::Refund => "refund",
            Self::Reset => "reset",
        }
    }

    /// The cost that the answer is about: only a check is about its own, the others tell what a call of 1 would get.
    pub(crate) const fn judged_cost(self, amount: u64) -> u64 {
        if matches!(self, Self::Check) { amount } else { 1 }
    }
}

/// One key of a call, with Limits of its own. The entries of a call are decided in order, each on its own.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry<'a> {
    pub(crate) limiter: &'a str,
    pub(crate) limits: &'a Arc<Limits>,
    pub(crate) key: &'a [u8],
    /// Tokens to take or to give back.
    pub(crate) amount: u64,
}

/// What the store says of one entry.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Answer {
    pub(crate) allowed: bool,
    pub(crate) readings: [Reading; MAX_LIMITS],
}

impl Answer {
    #[inline(always)]
    pub(crate) fn decision(&self, limits: &[Limit], cost: u64) -> Decision {
        // What passed waits for nothing, though its readings tell what is left after it.
        let cost = if self.allowed { 0 } else { cost };
        if let [limit] = limits {
            return Decision::of_one(algorithm::decide(self.readings[0], limit, cost), self.allowed, Source::Store);
        }
        let decisions =
            limits.iter().zip(self.readings).map(|(limit, reading)| algorithm::decide(reading, limit, cost));
        Decision::of(decisions, self.allowed, Source::Store)
    }
}

/// What the store says of a call.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    /// The store's time, in microseconds since the epoch, where it was told.
    pub(crate) now: Option<u64>,
    /// Keys that were found broken and were mended.
    pub(crate) healed: u64,
    /// One for each entry, in order.
    pub(crate) list: Vec<Answer>,
}

/// What a healthy store says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pong {
    /// `memory`, `redis` or `valkey`.
    pub server: String,
    /// The version of the server, as it says.
    pub version: String,
    /// Commands that the store's user may not run but grifo needs, or the pattern of the keys that it may not use.
    pub lacking: Vec<String>,
    /// Settings of the store that may make an outage worse than it need be, each with what to do.
    pub warnings: Vec<String>,
    /// How long the answer took.
    pub round_trip: std::time::Duration,
}

impl Answers {
    /// What each caller is told. What is said of all is told to the first.
    pub(crate) fn into_told(self) -> impl Iterator<Item = Told> {
        let (mut now, mut healed) = (self.now, self.healed);
        self.list.into_iter().map(move |answer| Told { answer, now: now.take(), healed: std::mem::take(&mut healed) })
    }
}

/// What the store says to one caller.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Told {
    pub(crate) answer: Answer,
    /// The store's time, in microseconds since the epoch, where it was told.
    pub(crate) now: Option<u64>,
    /// Keys that were found broken and were mended.
    pub(crate) healed: u64,
}

/// How a decision is to be made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms {
    pub(crate) operation: Operation,
    /// In microseconds since the epoch; none is the store's own time.
    pub(crate) now: Option<u64>,
    /// When it was asked for, and after when nobody waits for it any more.
    pub(crate) asked: StdInstant,
    pub(crate) deadline: Instant,
}

/// A decision that was asked for.
pub(crate) enum Asked<'a> {
    /// It is taken along with others.
    Waiting(redis::Receipt),
    /// It has yet to be worked for. Apart, so that what most callers wait for is small.
    Begun(BoxFuture<'a, Result<Told, Error>>),
}

impl Asked<'_> {
    pub(crate) async fn told(self) -> Result<Told, Error> {
        match self {
            Self::Waiting(receipt) => receipt.outcome().await,
            Self::Begun(work) => work.await,
        }
    }
}

pub(crate) trait Store {
    /// Asks for the decision of one entry.
    fn ask<'a>(&'a self, terms: Terms, entry: &'a Entry<'a>) -> Result<Asked<'a>, Error>;

    /// Decides entries in order, together where that can be. All outcomes are there by the deadline.
    fn decide(&self, terms: Terms, entries: &[Entry<'_>]) -> impl Future<Output = Vec<Result<Told, Error>>> + Send;

    /// Makes ready for calls, so that the first is as fast as the others.
    fn connect(&self) -> impl Future<Output = Result<(), Error>> + Send;

    fn ping(&self) -> impl Future<Output = Result<Pong, Error>> + Send;

    fn close(&self);
}

/// The stores there are.
#[derive(Debug)]
pub(crate) enum AnyStore {
    Memory(memory::MemoryStore),
    Redis(redis::RedisStore),
    /// A cluster, or a master that sentinels watch.
    Cluster(redis::ClusterStore),
}

impl AnyStore {
    /// How often a script was sent whole.
    pub(crate) fn reloads(&self) -> u64 {
        match self {
            Self::Memory(_) => 0,
            Self::Redis(store) => store.reloads(),
            Self::Cluster(store) => store.reloads(),
        }
    }

    /// How many decisions it has counted itself.
    pub(crate) fn decisions(&self) -> u64 {
        match self {
            Self::Memory(store) => store.decisions(),
            Self::Redis(_) | Self::Cluster(_) => 0,
        }
    }

    /// When a server that is out of reach is next tried, where that is known.
    pub(crate) fn next_attempt(&self) -> Option<StdInstant> {
        match self {
            Self::Memory(_) => None,
            Self::Redis(store) => store.next_attempt(),
            Self::Cluster(store) => store.next_attempt(),
        }
    }

    /// Whether it answers without waiting for anything.
    pub(crate) const fn is_immediate(&self) -> bool {
        matches!(self, Self::Memory(_))
    }
}

impl Store for AnyStore {
    fn ask<'a>(&'a self, terms: Terms, entry: &'a Entry<'a>) -> Result<Asked<'a>, Error> {
        match self {
            Self::Memory(store) => store.ask(terms, entry),
            Self::Redis(store) => store.ask(terms, entry),
            Self::Cluster(store) => store.ask(terms, entry),
        }
    }

    async fn decide(&self, terms: Terms, entries: &[Entry<'_>]) -> Vec<Result<Told, Error>> {
        match self {
            Self::Memory(store) => store.decide(terms, entries).await,
            Self::Redis(store) => store.decide(terms, entries).await,
            Self::Cluster(store) => store.decide(terms, entries).await,
        }
    }

    async fn connect(&self) -> Result<(), Error> {
        match self {
            Self::Memory(store) => store.connect().await,
            Self::Redis(store) => store.connect().await,
            Self::Cluster(store) => store.connect().await,
        }
    }

    async fn ping(&self) -> Result<Pong, Error> {
        match self {
            Self::Memory(store) => store.ping().await,
            Self::Redis(store) => store.ping().await,
            Self::Cluster(store) => store.ping().await,
        }
    }

    fn close(&self) {
        match self {
            Self::Memory(store) => store.close(),
            Self::Redis(store) => store.close(),
            Self::Cluster(store) => store.close(),
        }
    }
}
