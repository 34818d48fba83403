//! Redis or Valkey Cluster; and a master that sentinels watch, which is asked in the same way.
//!
//! One multiplexed connection for each master, and a map from partitions to masters of our own, rather than the cluster
//! connection of the `redis` crate: that one answers a missing script by loading it on all nodes and waiting for each, and
//! routes by slots what here is routed by partitions. A node that hangs holds up nobody but the callers of its own keys.
//! It is not slower either: in `make bench`, plain scripts over one connection to each master ran as often as over the
//! cluster connection with one caller, and up to a seventh more often with 50 and 500.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use redis::Value;

use super::access::Access;
use super::address::Address;
use super::node::Node;
use super::ping::ping_cluster;
use super::record::Record;
use super::reply::Failure;
use super::script::Call;
use super::sentinel::Sentinels;
use super::topology::{Seeds, Topology};
use crate::error::{Error, ErrorKind};
use crate::key::Partitions;
use crate::store::{Answer, Answers, Entry, Operation, Pong, Store};

/// How often a request that surely did not run is sent again, before the deadline may end it.
const ATTEMPTS: usize = 16;
/// The pause before asking again a cluster that is just changing, and how many there may be: so that the default deadline
/// leaves time to say what is wrong.
const PAUSE: Duration = Duration::from_millis(5);
const PAUSES: usize = 4;

/// A cluster, or what is like a cluster of one master: the master that sentinels watch.
#[derive(Debug)]
pub(crate) struct ClusterStore {
    router: Arc<Router>,
    /// Whether keys of different partitions must go in different calls.
    has_slots: bool,
    prefix: String,
    record: Record,
    access: Arc<Access>,
}

impl ClusterStore {
    pub(crate) fn new(seeds: Vec<Address>, prefix: String, partitions: Option<Partitions>, access: Access) -> Self {
        Self::of(Seeds::Cluster(seeds), prefix, partitions, access)
    }

    /// The master that sentinels watch. `access` is that of the servers that they name.
    pub(crate) fn watched(
        sentinels: Sentinels,
        prefix: String,
        partitions: Option<Partitions>,
        access: Access,
    ) -> Self {
        Self::of(Seeds::Sentinels(sentinels), prefix, partitions, access)
    }

    fn of(seeds: Seeds, prefix: String, partitions: Option<Partitions>, access: Access) -> Self {
        let access = Arc::new(access);
        let has_slots = matches!(seeds, Seeds::Cluster(_));
        let router = Arc::new(Router { topology: Topology::new(seeds, Arc::clone(&access)) });
        Self { router, has_slots, record: Record::new(&prefix, partitions), prefix, access }
    }

    /// How often a script had to be sent whole, since a server had forgotten it.
    pub(crate) fn reloads(&self) -> u64 {
        self.access.reloads()
    }

    /// When a server that is out of reach is next asked.
    pub(crate) fn next_attempt(&self) -> Option<Instant> {
        self.router.topology.next_attempt()
    }

    /// Which keys may share a call.
    pub(crate) fn lane(&self, key: &[u8]) -> usize {
        if self.has_slots { self.record.partitions().of(key) } else { 0 }
    }

    /// Decides entries of any partitions, in as many calls as that takes.
    async fn decide(
        &self,
        partitions: Partitions,
        operation: Operation,
        entries: &[Entry<'_>],
        now: Option<u64>,
    ) -> Result<Answers, Error> {
        if !self.has_slots {
            return self.decide_in_slot(partitions, 0, operation, entries, now).await;
        }
        let mut all = Answers { list: vec![Answer::default(); entries.len()], ..Answers::default() };
        for (partition, places) in by_partition(partitions, entries) {
            let part: Vec<Entry<'_>> = places.iter().map(|place| entries[*place]).collect();
            let answers = self.decide_in_slot(partitions, partition, operation, &part, now).await?;
            (all.now, all.healed) = (answers.now, all.healed + answers.healed);
            for (place, answer) in places.into_iter().zip(answers.list) {
                all.list[place] = answer;
            }
        }
        Ok(all)
    }

    /// Decides entries of one partition together, or one by one while their slot is moving.
    async fn decide_in_slot(
        &self,
        partitions: Partitions,
        partition: usize,
        operation: Operation,
        entries: &[Entry<'_>],
        now: Option<u64>,
    ) -> Result<Answers, Error> {
        let slot = partitions.slot(partition);
        let call = Call::new(&self.prefix, partitions, operation, entries, now);
        if let Some(value) = self.router.run(&call, slot).await? {
            return call.parse(value);
        }
        let mut all = Answers::default();
        for entry in entries {
            let call = Call::new(&self.prefix, partitions, operation, std::slice::from_ref(entry), now);
            let answers = call.parse(self.router.run_whole(&call, slot).await?)?;
            (all.now, all.healed) = (answers.now, all.healed + answers.healed);
            all.list.extend(answers.list);
        }
        Ok(all)
    }

    fn read_record(&self, call: Call) -> impl Future<Output = Result<Value, Error>> + Send + 'static {
        let router = Arc::clone(&self.router);
        async move { router.run_whole(&call, 0).await }
    }
}

/// The places of the entries of each partition.
fn by_partition(partitions: Partitions, entries: &[Entry<'_>]) -> Vec<(usize, Vec<usize>)> {
    let mut groups: Vec<(usize, Vec<usize>)> = Vec::new();
    for (place, entry) in entries.iter().enumerate() {
        let partition = partitions.of(entry.key);
        match groups.iter_mut().find(|(other, _)| *other == partition) {
            Some((_, places)) => places.push(place),
            None => groups.push((partition, vec![place])),
        }
    }
    groups
}

/// Sends calls to the masters of their slots.
#[derive(Debug)]
struct Router {
    topology: Topology,
}

/// What to do after a request that did not run.
enum Next {
    Again,
    AgainAfterPause,
    /// The keys of the call are on two nodes just now.
    Split,
}

impl Router {
    /// Sends a call until it ran, or failed in a way that leaves open whether it ran.
    /// None when its entries must be sent one by one.
    async fn run(&self, call: &Call, slot: u16) -> Result<Option<Value>, Error> {
        let mut unanswered = LearnIfDropped { topology: &self.topology, armed: true };
        let outcome = self.attempts(call, slot).await;
        unanswered.armed = false;
        outcome
    }

    /// The same for a call that cannot be split.
    async fn run_whole(&self, call: &Call, slot: u16) -> Result<Value, Error> {
        let moving = || Error::new(ErrorKind::Cluster, "the slot is just moving to another node");
        self.run(call, slot).await?.ok_or_else(moving)
    }

    async fn attempts(&self, call: &Call, slot: u16) -> Result<Option<Value>, Error> {
        let mut last = None;
        let mut pauses = 0;
        for _ in 0..ATTEMPTS {
            let node = self.topology.master(slot).await?;
            let link = match node.link().await {
                Ok(link) => link,
                Err(error) => {
                    self.topology.learn_soon();
                    return Err(error);
                }
            };
            let (node, outcome) = match node.run(&link, call, false).await {
                Err(Failure::Ask(error, to)) => self.ask(node, error, &to, call).await,
                outcome => (node, outcome),
            };
            let failure = match outcome {
                Ok(value) => return Ok(Some(value)),
                Err(failure) => failure,
            };
            match self.after(&failure, &node, slot, call.entries()) {
                Some(Next::Again) => {}
                Some(Next::AgainAfterPause) if pauses < PAUSES => {
                    pauses += 1;
                    tokio::time::sleep(PAUSE).await;
                }
                Some(Next::Split) => return Ok(None),
                Some(Next::AgainAfterPause) | None => return Err(failure.into_error()),
            }
            last = Some(failure.into_error());
        }
        Err(last.unwrap_or_else(|| Error::new(ErrorKind::Cluster, "the cluster did not run the script")))
    }

    /// Sends a call to the node that its slot is just moving to. Who answered, and what.
    async fn ask(
        &self,
        answered: Arc<Node>,
        error: Error,
        to: &str,
        call: &Call,
    ) -> (Arc<Node>, Result<Value, Failure>) {
        let Some(node) = self.topology.node_at(to, &answered) else { return (answered, Err(Failure::Final(error))) };
        let outcome = match node.link().await {
            Ok(link) => node.run(&link, call, true).await,
            Err(error) => Err(Failure::Final(error)),
        };
        (node, outcome)
    }

    /// What to do after a failure; none when it is final.
    fn after(&self, failure: &Failure, node: &Arc<Node>, slot: u16, entries: usize) -> Option<Next> {
        match failure {
            Failure::Moved(_, to) => {
                let moved = self.topology.node_at(to, node)?;
                self.topology.moved(slot, moved);
                self.topology.learn_soon();
                Some(Next::Again)
            }
            Failure::TryAgain(_) if entries > 1 => Some(Next::Split),
            Failure::TryAgain(_) => Some(Next::AgainAfterPause),
            Failure::ReadOnly(_) | Failure::ClusterDown(_) | Failure::Loading(_) => {
                self.topology.learn_soon();
                Some(Next::AgainAfterPause)
            }
            Failure::Unsent(_) | Failure::NoScript(_) | Failure::NoReadOnlyForm(_) | Failure::Ask(..) => {
                Some(Next::Again)
            }
            Failure::Final(_) => {
                self.topology.learn_soon();
                None
            }
        }
    }
}

impl Store for ClusterStore {
    async fn call(&self, operation: Operation, entries: &[Entry<'_>], now: Option<u64>) -> Result<Answers, Error> {
        let used = self.record.in_use(operation, entries, now, |call| self.read_record(call))?;
        let answers = self.decide(used.partitions, operation, entries, now).await?;
        match self.record.instead_of(used).await? {
            Some(partitions) => self.decide(partitions, operation, entries, now).await,
            None => Ok(answers),
        }
    }

    async fn connect(&self) -> Result<(), Error> {
        let masters = self.router.topology.masters().await?;
        try_join_all(masters.iter().map(|node| node.warm_up())).await?;
        self.record.confirm(|call| self.read_record(call)).await
    }

    async fn ping(&self) -> Result<Pong, Error> {
        let masters = self.router.topology.masters().await?;
        let pong = ping_cluster(&masters, &self.prefix).await?;
        pong.ok_or_else(|| Error::new(ErrorKind::Cluster, "the cluster has no master that serves slots"))
    }

    fn close(&self) {
        self.record.close();
        self.router.topology.close();
    }
}

/// A caller whose deadline ended got no answer: perhaps another node serves the slot by now.
struct LearnIfDropped<'a> {
    topology: &'a Topology,
    armed: bool,
}

impl Drop for LearnIfDropped<'_> {
    fn drop(&mut self) {
        if self.armed && tokio::runtime::Handle::try_current().is_ok() {
            self.topology.learn_soon();
        }
    }
}
