//! Which master serves which slot, learnt from the cluster or from sentinels and kept up to date.
//!
//! Learning goes on in the background and never twice at once. It asks the masters of a cluster that are connected; where
//! none answers, it begins anew with the seeds of the URL, whose names are resolved each time. Attempts that fail are spaced
//! with backoff and jitter.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::{FromRedisValue, Value, cmd};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{Instant as TokioInstant, timeout_at};

use super::access::Access;
use super::address::{Address, Place};
use super::backoff::backoff;
use super::node::Node;
use super::reply::Failure;
use super::sentinel::Sentinels;
use crate::error::{Error, ErrorKind};
use crate::key::{MOST_PARTITIONS, SLOT_SPACING};

/// Two attempts to learn begin no closer together.
const PAUSE: Duration = Duration::from_millis(100);
/// Timeouts alone are no reason to ask sentinels again so soon after they named a master that confirmed it: of a master that
/// is merely slow, all clients would ask them all the time.
const SENTINEL_PAUSE: Duration = Duration::from_secs(1);
/// How long one node may take to tell what it knows.
const PATIENCE: Duration = Duration::from_millis(500);
/// How much longer the others may take, once one has told of a part of the slots.
const STRAGGLERS: Duration = Duration::from_millis(100);
/// Redirections beyond so many nodes lead nowhere: no cluster is so large.
const MOST_NODES: usize = 4096;

/// Learning that takes so much longer than connecting runs on a runtime that nobody drives.
const STUCK_AFTER: Duration = Duration::from_secs(1);

/// Every slot there is, as a range.
const ALL_SLOTS: (u16, u16) = (0, 16_383);

/// The first and the last of some slots, and where their master is.
type Range = (u16, u16, Place);
/// The outcome of learning, once there is one.
type Learning = watch::Receiver<Option<Result<(), Error>>>;

/// Who can tell which masters there are.
#[derive(Debug)]
pub(super) enum Seeds {
    /// Any nodes of the cluster.
    Cluster(Vec<Address>),
    /// The sentinels of one master, which serves all slots.
    Sentinels(Sentinels),
}

impl Seeds {
    fn node_at(&self, (host, port): Place) -> Address {
        match self {
            Self::Cluster(seeds) => seeds[0].at(host, port),
            Self::Sentinels(sentinels) => sentinels.server_at(host, port),
        }
    }

    /// Whether a master may be connected to again without asking who is the master now. A node of a cluster says itself
    /// what it does not serve.
    const fn may_reconnect(&self) -> bool {
        matches!(self, Self::Cluster(_))
    }
}

/// The masters, and who tells of them.
#[derive(Debug)]
pub(super) struct Topology {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    seeds: Arc<Seeds>,
    access: Arc<Access>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Every master that is known.
    nodes: HashMap<Place, Arc<Node>>,
    /// The master of each slot that a partition may live in: of every fourth.
    masters: Vec<Option<Arc<Node>>>,
    learning: Option<(Learning, AbortHandle)>,
    began: Option<Instant>,
    /// When learning last succeeded.
    learnt: Option<Instant>,
    /// Attempts to learn that failed since one did not.
    failures: u32,
    /// When the next may be made, if not now.
    not_before: Option<Instant>,
    is_closed: bool,
}

impl Topology {
    pub(super) fn new(seeds: Seeds, access: Arc<Access>) -> Self {
        let state = State {
            nodes: HashMap::new(),
            masters: vec![None; MOST_PARTITIONS],
            learning: None,
            began: None,
            learnt: None,
            failures: 0,
            not_before: None,
            is_closed: false,
        };
        Self { shared: Arc::new(Shared { seeds: Arc::new(seeds), access, state: Mutex::new(state) }) }
    }

    /// The master of a slot; waits until the seeds have told it.
    pub(super) async fn master(&self, slot: u16) -> Result<Arc<Node>, Error> {
        if let Some(node) = self.known_master(slot) {
            return Ok(node);
        }
        if !self.is_known_to_be_uncovered(slot) {
            self.learn().await?;
        }
        let node = self.shared.lock().masters[index_of(slot)].clone();
        node.ok_or_else(|| Error::new(ErrorKind::Cluster, "no master of the cluster serves the slot of this key"))
    }

    /// Whether the seeds have just told that nobody serves a slot: however many ask about it, they are not asked at that rate.
    fn is_known_to_be_uncovered(&self, slot: u16) -> bool {
        let state = self.shared.lock();
        state.masters[index_of(slot)].is_none() && state.learnt.is_some_and(|learnt| learnt.elapsed() < PAUSE)
    }

    fn known_master(&self, slot: u16) -> Option<Arc<Node>> {
        let node = self.shared.lock().masters[index_of(slot)].clone()?;
        (self.shared.seeds.may_reconnect() || node.is_connected()).then_some(node)
    }

    /// Every master, once the seeds have told them.
    pub(super) async fn masters(&self) -> Result<Vec<Arc<Node>>, Error> {
        self.learn().await?;
        Ok(self.shared.lock().nodes.values().cloned().collect())
    }

    /// The node that a redirection names, as host and port; an empty host is that of the node that answered.
    pub(super) fn node_at(&self, redirection: &str, answered: &Node) -> Option<Arc<Node>> {
        let (host, port) = redirection.rsplit_once(':')?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let place = (known_host(Some(host), answered.address()), port.parse().ok()?);
        let mut state = self.shared.lock();
        let has_room = state.nodes.len() < MOST_NODES || state.nodes.contains_key(&place);
        (has_room && !state.is_closed).then(|| self.shared.node(&mut state, place))
    }

    /// Takes note that a slot has moved.
    pub(super) fn moved(&self, slot: u16, node: Arc<Node>) {
        self.shared.lock().masters[index_of(slot)] = Some(node);
    }

    /// Begins to learn in the background, unless that is going on or was just begun.
    pub(super) fn learn_soon(&self) {
        let mut state = self.shared.lock();
        if !state.is_closed && !state.is_early() && state.began.is_none_or(|began| began.elapsed() >= PAUSE) {
            self.shared.begin(&mut state);
        }
    }

    /// Learns, or waits for the one who does, or gives the error of the last attempt where the next is not due.
    pub(super) async fn learn(&self) -> Result<(), Error> {
        let mut learning = {
            let mut state = self.shared.lock();
            if state.is_closed {
                return Err(closed());
            }
            if let Some(error) = state.last_error().filter(|_| state.is_early()) {
                return Err(error);
            }
            self.shared.begin(&mut state)
        };
        match learning.wait_for(Option::is_some).await {
            Ok(outcome) => outcome.clone().unwrap_or(Ok(())),
            Err(_) => Err(Error::new(
                ErrorKind::Connection,
                "asking for the masters ended together with the runtime that it ran on",
            )),
        }
    }

    /// When an unreachable node is next tried, at the earliest.
    pub(super) fn next_attempt(&self) -> Option<Instant> {
        let state = self.shared.lock();
        let next_learning = state.not_before.filter(|_| state.failures > 0);
        state.nodes.values().filter_map(|node| node.next_attempt()).chain(next_learning).min()
    }

    pub(super) fn close(&self) {
        let mut state = self.shared.lock();
        state.is_closed = true;
        if let Some((_, task)) = state.learning.take() {
            task.abort();
        }
        state.nodes.values().for_each(|node| node.close());
        state.nodes.clear();
        state.masters.fill(None);
    }
}

impl Drop for Topology {
    fn drop(&mut self) {
        self.close();
    }
}

impl State {
    /// Whether the last attempt to learn ended so short a time ago that the next is not due.
    fn is_early(&self) -> bool {
        self.not_before.is_some_and(|time| Instant::now() < time)
    }

    fn last_error(&self) -> Option<Error> {
        let (learning, _) = self.learning.as_ref()?;
        learning.borrow().as_ref()?.as_ref().err().cloned()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn node(&self, state: &mut State, place: Place) -> Arc<Node> {
        let make = || {
            let place = self.access.address_map.translate(&place.0, place.1);
            Arc::new(Node::new(self.seeds.node_at(place), Arc::clone(&self.access)))
        };
        Arc::clone(state.nodes.entry(place.clone()).or_insert_with(make))
    }

    fn begin(self: &Arc<Self>, state: &mut State) -> Learning {
        if let Some((learning, _)) = &state.learning
            && learning.borrow().is_none()
            && learning.has_changed().is_ok()
            && state.began.is_some_and(|began| began.elapsed() < self.access.connect_timeout + STUCK_AFTER)
        {
            return learning.clone();
        }
        if let Some((_, stuck)) = state.learning.take() {
            stuck.abort();
        }
        let (sender, learning) = watch::channel(None);
        let task = tokio::spawn(learn(Arc::downgrade(self), sender));
        state.learning = Some((learning.clone(), task.abort_handle()));
        state.began = Some(Instant::now());
        learning
    }

    /// A server that is said to be a master, and is known for as long as that is looked into.
    fn candidate(&self, place: Place) -> Result<Arc<Node>, Error> {
        let mut state = self.lock();
        if state.is_closed {
            return Err(closed());
        }
        Ok(self.node(&mut state, place))
    }

    /// Takes note that nobody told anything; candidates that were no masters are forgotten.
    fn fail(&self) {
        let mut state = self.lock();
        state.not_before = Some(Instant::now() + backoff(state.failures));
        state.failures = state.failures.saturating_add(1);
        let State { nodes, masters, .. } = &mut *state;
        let serving: HashSet<_> = masters.iter().flatten().map(Arc::as_ptr).collect();
        nodes.retain(|_, node| serving.contains(&Arc::as_ptr(node)));
    }

    /// Takes over what the seeds told.
    fn settle(&self, ranges: Vec<Range>) {
        let mut state = self.lock();
        if state.is_closed {
            return;
        }
        let mut masters = vec![None; MOST_PARTITIONS];
        let mut serving = HashSet::new();
        for (first, last, place) in ranges {
            let indices = usize::from(first.div_ceil(SLOT_SPACING))..=index_of(last);
            let Some(served) = masters.get_mut(indices).filter(|served| !served.is_empty()) else { continue };
            served.fill(Some(self.node(&mut state, place.clone())));
            serving.insert(place);
        }
        state.nodes.retain(|place, _| serving.contains(place));
        state.masters = masters;
        state.failures = 0;
        state.learnt = Some(Instant::now());
        state.not_before = (!self.seeds.may_reconnect()).then(|| Instant::now() + SENTINEL_PAUSE);
    }
}

/// The place of a slot among the masters.
fn index_of(slot: u16) -> usize {
    usize::from(slot / SLOT_SPACING)
}

/// Asks who serves what, and tells all who wait for it.
async fn learn(shared: Weak<Shared>, sender: watch::Sender<Option<Result<(), Error>>>) {
    let outcome = ask_anyone(&shared).await;
    let Some(shared) = shared.upgrade() else { return };
    let outcome = match outcome {
        Ok(ranges) => {
            shared.settle(ranges);
            Ok(())
        }
        Err(error) => {
            shared.fail();
            Err(error)
        }
    };
    sender.send_replace(Some(outcome));
}

fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the client was closed")
}

async fn ask_anyone(shared: &Weak<Shared>) -> Result<Vec<Range>, Error> {
    let seeds = Arc::clone(&shared.upgrade().ok_or_else(closed)?.seeds);
    match &*seeds {
        Seeds::Cluster(seeds) => ask_cluster(shared, seeds).await,
        Seeds::Sentinels(sentinels) => {
            let candidate = |place| shared.upgrade().ok_or_else(closed)?.candidate(place);
            let master = sentinels.find_master(candidate).await?;
            Ok(vec![(ALL_SLOTS.0, ALL_SLOTS.1, master)])
        }
    }
}

/// The answer of connected masters, else of seeds.
async fn ask_cluster(shared: &Weak<Shared>, seeds: &[Address]) -> Result<Vec<Range>, Error> {
    let connected: Vec<Arc<Node>> = {
        let shared = shared.upgrade().ok_or_else(closed)?;
        let state = shared.lock();
        state.nodes.values().filter(|node| node.is_connected()).cloned().collect()
    };
    if !connected.is_empty()
        && let Ok(ranges) = widest_of(connected, PATIENCE).await
    {
        return Ok(ranges);
    }
    let (seeds, timeout) = {
        let shared = shared.upgrade().ok_or_else(closed)?;
        let fresh = |seed: &Address| Arc::new(Node::new(seed.clone(), Arc::clone(&shared.access)));
        (seeds.iter().map(fresh).collect(), shared.access.connect_timeout)
    };
    widest_of(seeds, timeout).await
}

/// The first answer that tells of all slots, else the one that tells of most: a node that has just joined, or lost what it
/// knew, is the first to answer and knows the least.
async fn widest_of(nodes: Vec<Arc<Node>>, patience: Duration) -> Result<Vec<Range>, Error> {
    let mut asked: FuturesUnordered<_> = nodes.iter().map(|node| ask_slots(node)).collect();
    let mut end = TokioInstant::now() + patience;
    let late = || Error::new(ErrorKind::Timeout, "no node of the cluster told in time which serves what");
    let mut best: Result<Vec<Range>, Error> = Err(late());
    while let Ok(Some(answer)) = timeout_at(end, asked.next()).await {
        match answer {
            Ok(ranges) if covered(&ranges) > ALL_SLOTS.1.into() => return Ok(ranges),
            Ok(ranges) => {
                end = end.min(TokioInstant::now() + STRAGGLERS);
                if best.as_ref().is_ok_and(|best| covered(best) >= covered(&ranges)) {
                    continue;
                }
                best = Ok(ranges);
            }
            Err(error) if best.is_err() => best = Err(error),
            Err(_) => {}
        }
    }
    best
}

/// How many slots have a master.
fn covered(ranges: &[Range]) -> usize {
    ranges.iter().map(|(first, last, _)| usize::from(last.saturating_sub(*first)) + 1).sum()
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
fn known_host(host: Option<&str>, asked: &Address) -> String {
    match host {
        None | Some("" | "?") => asked.host(),
        Some(host) => host.to_owned(),
    }
}
