//! Which master serves which slot, learnt from the cluster or from sentinels and kept up to date.
//!
//! Learning goes on in the background and never twice at once. It asks the masters of a cluster that are connected; where
//! none answers, or what they tell is not enough, also the seeds of the URL, whose names are resolved each time, and other
//! masters that are known. Attempts that fail are spaced with backoff and jitter.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::access::Access;
use super::address::{Address, Place};
use super::backoff::backoff;
use super::node::Node;
use super::sentinel::Sentinels;
use super::slots::{Range, Told, best_of, better_of, indices, known_host};
use crate::error::{Error, ErrorKind, closed};
use crate::key::{MOST_PARTITIONS, SLOT_SPACING};

/// Two attempts to learn begin no closer together.
const PAUSE: Duration = Duration::from_millis(100);
/// Timeouts alone are no reason to ask sentinels again so soon after they named a master that confirmed it: of a master that
/// is merely slow, all clients would ask them all the time.
const SENTINEL_PAUSE: Duration = Duration::from_secs(1);
/// How long one node may take to tell what it knows.
const PATIENCE: Duration = Duration::from_millis(500);
/// All others, if they cannot tell enough either, are asked no more often than this: it takes connections of its own.
const ALL_PAUSE: Duration = Duration::from_secs(1);
/// How many masters are asked beside the connected ones and the seeds.
const MOST_OTHERS: usize = 8;
/// Redirections beyond so many nodes lead nowhere: no cluster is so large.
const MOST_NODES: usize = 4096;

/// Learning that takes so much longer than connecting runs on a runtime that nobody drives.
const STUCK_AFTER: Duration = Duration::from_secs(1);

/// Every slot there is, as a range.
const ALL_SLOTS: (u16, u16) = (0, 16_383);

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
    /// Where masters were said to be since the last time when all slots had one.
    acquainted: HashSet<Place>,
    learning: Option<(Learning, AbortHandle)>,
    began: Option<Instant>,
    /// When learning last succeeded.
    learnt: Option<Instant>,
    /// When the seeds and other known masters were last asked, and could not tell enough.
    asked_all: Option<Instant>,
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
            acquainted: HashSet::new(),
            learning: None,
            began: None,
            learnt: None,
            asked_all: None,
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

    pub(super) fn known_master(&self, slot: u16) -> Option<Arc<Node>> {
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
        state.acquainted.clear();
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

    /// What the map is worth, as an answer is.
    fn worth(&self) -> usize {
        self.masters.iter().flatten().filter(|node| !node.is_doubted()).count()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn address_of(&self, (host, port): &Place) -> Address {
        self.seeds.node_at(self.access.address_map.translate(host, *port))
    }

    fn node(&self, state: &mut State, place: Place) -> Arc<Node> {
        let make = || Arc::new(Node::new(self.address_of(&place), Arc::clone(&self.access)));
        Arc::clone(state.nodes.entry(place.clone()).or_insert_with(make))
    }

    /// The masters that are connected, and where those are that are doubted.
    fn connected(&self) -> (Vec<Arc<Node>>, HashSet<Place>) {
        let state = self.lock();
        let connected = state.nodes.values().filter(|node| node.is_connected()).cloned().collect();
        let doubted = state.nodes.iter().filter(|(_, node)| node.is_doubted());
        (connected, doubted.map(|(place, _)| place.clone()).collect())
    }

    /// What the map is worth, where all were just asked in vain.
    fn worth_if_just_asked_all(&self) -> Option<usize> {
        let state = self.lock();
        state.asked_all.filter(|asked| asked.elapsed() < ALL_PAUSE).map(|_| state.worth())
    }

    /// The seeds and some masters that were known, to be asked over connections of their own, which end with that.
    fn all_afresh(&self, seeds: &[Address]) -> Vec<Arc<Node>> {
        let state = self.lock();
        let known = fastrand::choose_multiple(&state.acquainted, MOST_OTHERS);
        let known = known.into_iter().map(|place| self.address_of(place));
        let known = known.filter(|known| seeds.iter().all(|seed| seed.endpoint != known.endpoint));
        let afresh = |address: Address| {
            let is_same = |node: &&Arc<Node>| node.address().endpoint == address.endpoint;
            let is_doubted = state.nodes.values().find(is_same).is_some_and(|node| node.is_doubted());
            let node = Node::new(address, Arc::clone(&self.access));
            node.set_doubted(is_doubted);
            Arc::new(node)
        };
        seeds.iter().cloned().chain(known).map(afresh).collect()
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

    /// Takes over what was told, if there was news.
    fn settle(&self, told: Option<Vec<Range>>) {
        let mut state = self.lock();
        if state.is_closed {
            return;
        }
        if let Some(ranges) = told {
            self.take_over(&mut state, ranges);
        }
        state.failures = 0;
        state.learnt = Some(Instant::now());
        state.not_before = (!self.seeds.may_reconnect()).then(|| Instant::now() + SENTINEL_PAUSE);
    }

    fn take_over(&self, state: &mut State, ranges: Vec<Range>) {
        let mut masters = vec![None; MOST_PARTITIONS];
        let mut serving = HashSet::new();
        for range in ranges {
            let Some(served) = masters.get_mut(indices(&range)).filter(|served| !served.is_empty()) else { continue };
            let (_, _, place) = range;
            served.fill(Some(self.node(state, place.clone())));
            serving.insert(place);
        }
        state.nodes.retain(|place, _| serving.contains(place));
        if masters.iter().all(Option::is_some) || state.acquainted.len() >= MOST_NODES {
            state.acquainted.clear();
        }
        state.acquainted.extend(serving);
        state.masters = masters;
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
        Ok(told) => {
            shared.settle(told);
            Ok(())
        }
        Err(error) => {
            shared.fail();
            Err(error)
        }
    };
    sender.send_replace(Some(outcome));
}

async fn ask_anyone(shared: &Weak<Shared>) -> Result<Option<Vec<Range>>, Error> {
    let seeds = Arc::clone(&shared.upgrade().ok_or_else(closed)?.seeds);
    match &*seeds {
        Seeds::Cluster(seeds) => ask_cluster(shared, seeds).await,
        Seeds::Sentinels(sentinels) => {
            let candidate = |place| shared.upgrade().ok_or_else(closed)?.candidate(place);
            let master = sentinels.find_master(candidate).await?;
            Ok(Some(vec![(ALL_SLOTS.0, ALL_SLOTS.1, master)]))
        }
    }
}

/// What connected masters tell; where that is not enough, all others are asked too. Nothing, where that was just done in vain
/// and the map knows more.
async fn ask_cluster(shared: &Weak<Shared>, seeds: &[Address]) -> Result<Option<Vec<Range>>, Error> {
    let shared = || shared.upgrade().ok_or_else(closed);
    let (connected, doubted) = shared()?.connected();
    let near = best_of(connected, &doubted, PATIENCE).await;
    if near.as_ref().is_ok_and(Told::is_enough) {
        return near.map(|told| Some(told.ranges));
    }
    if let Some(worth) = shared()?.worth_if_just_asked_all() {
        return Ok(near.ok().filter(|told| told.worth() >= worth).map(|told| told.ranges));
    }
    let (others, timeout) = (shared()?.all_afresh(seeds), shared()?.access.connect_timeout);
    let best = better_of(near, best_of(others, &doubted, timeout).await)?;
    shared()?.lock().asked_all = (!best.is_enough()).then(Instant::now);
    Ok(Some(best.ranges))
}
