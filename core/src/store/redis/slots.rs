//! Who serves which slots, as the nodes of a cluster tell it, and whose word counts.
//!
//! A master that its cluster has cut off still answers clients, and tells of old times or of itself alone. It is doubted from
//! the moment when it says that the cluster is down until a call succeeds there. The slots that an answer leaves to doubted
//! masters count for nothing, whoever gives it.

use std::collections::HashSet;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::{FromRedisValue, Value, cmd};
use tokio::time::{Instant, timeout_at};

use super::address::{Address, Place};
use super::node::Node;
use super::reply::Failure;
use crate::error::{Error, ErrorKind};
use crate::key::{MOST_PARTITIONS, SLOT_SPACING};

/// How much longer the others may take, once one that is not doubted has told of a part of the slots.
const STRAGGLERS: Duration = Duration::from_millis(100);

/// The first and the last of some slots, and where their master is.
pub(super) type Range = (u16, u16, Place);

/// What a node told.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) ranges: Vec<Range>,
    /// How many slots that a partition may live in have a master that is not doubted; and whether the node itself is not.
    rank: (usize, bool),
}

impl Told {
    fn new(ranges: Vec<Range>, node: &Node, doubted: &HashSet<Place>) -> Self {
        let trusted = ranges.iter().filter(|(.., place)| !doubted.contains(place));
        let worth = trusted.map(|range| indices(range).count()).sum();
        Self { ranges, rank: (worth, !node.is_doubted()) }
    }

    pub(super) const fn worth(&self) -> usize {
        self.rank.0
    }

    /// Whether no other node could tell better.
    pub(super) const fn is_enough(&self) -> bool {
        self.rank.0 >= MOST_PARTITIONS && self.rank.1
    }
}

/// The first answer that is enough, else the best: a node that has just joined, or lost what it knew, is the first to answer
/// and knows the least.
pub(super) async fn best_of(
    nodes: Vec<Arc<Node>>,
    doubted: &HashSet<Place>,
    patience: Duration,
) -> Result<Told, Error> {
    let ask = async |node: &Arc<Node>| Ok(Told::new(ask_slots(node).await?, node, doubted));
    let mut asked: FuturesUnordered<_> = nodes.iter().map(ask).collect();
    let mut end = Instant::now() + patience;
    let mut best = Err(Error::new(ErrorKind::Timeout, "no node of the cluster told in time which serves what"));
    while let Ok(Some(answer)) = timeout_at(end, asked.next()).await {
        match &answer {
            Ok(told) if told.is_enough() => return answer,
            Ok(told) if told.rank.1 => end = end.min(Instant::now() + STRAGGLERS),
            Ok(_) | Err(_) => {}
        }
        best = better_of(best, answer);
    }
    best
}

/// The better answer, and of errors the later.
pub(super) fn better_of(one: Result<Told, Error>, other: Result<Told, Error>) -> Result<Told, Error> {
    match (&one, &other) {
        (Ok(_), Err(_)) => one,
        (Ok(told), Ok(also)) if told.rank >= also.rank => one,
        _ => other,
    }
}

/// The places of the slots of a range among those that a partition may live in.
pub(super) fn indices((first, last, _): &Range) -> RangeInclusive<usize> {
    usize::from(first.div_ceil(SLOT_SPACING))..=usize::from(last / SLOT_SPACING)
}

async fn ask_slots(node: &Node) -> Result<Vec<Range>, Error> {
    let mut command = cmd("CLUSTER");
    command.arg("SLOTS");
    let value = node.link().await?.ask(&command).await.map_err(Failure::into_error)?;
    let unreadable = || Error::new(ErrorKind::Protocol, "the server's list of slots is not of the expected form");
    let ranges = read_slots(value, node.address()).ok_or_else(unreadable)?;
    if ranges.is_empty() {
        return Err(Error::new(ErrorKind::Cluster, "the node knows of no master that serves slots"));
    }
    Ok(ranges)
}

/// Reads the reply to CLUSTER SLOTS: ranges of slots, each with its master first.
fn read_slots(value: Value, asked: &Address) -> Option<Vec<Range>> {
    let Value::Array(ranges) = value else { return None };
    let mut read = Vec::with_capacity(ranges.len());
    for range in ranges {
        let Value::Array(parts) = range else { return None };
        let [Value::Int(first), Value::Int(last), Value::Array(master), ..] = parts.as_slice() else { return None };
        let [host, Value::Int(port), ..] = master.as_slice() else { return None };
        let host = Option::<String>::from_redis_value(host.clone()).ok()?;
        let place = (known_host(host.as_deref(), asked), u16::try_from(*port).ok()?);
        read.push((u16::try_from(*first).ok()?, u16::try_from(*last).ok()?, place));
    }
    Some(read)
}

/// A node that does not know its own name says none, an empty one or `?`: it is where it was asked.
pub(super) fn known_host(host: Option<&str>, asked: &Address) -> String {
    match host {
        None | Some("" | "?") => asked.host(),
        Some(host) => host.to_owned(),
    }
}
