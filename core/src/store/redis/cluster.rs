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
use tokio::time::timeout_at;

use super::access::Access;
use super::address::Address;
use super::batch::{Demand, Keyspace};
use super::call::Call;
use super::flight::{self, Route};
use super::node::Node;
use super::ping::ping_cluster;
use super::record::{InUse, Record};
use super::reply::Failure;
use super::sentinel::Sentinels;
use super::topology::{Seeds, Topology};
use crate::error::{Error, ErrorKind, late};
use crate::key::Partitions;
use crate::store::{Answers, Asked, Entry, Pong, Store, Terms, Told};

/// How often a request that surely did not run is sent again, before the deadline may end it.
const ATTEMPTS: usize = 16;
/// The pause before asking again a cluster that is just changing, and how long it is asked again: so that the default
/// deadline leaves time to say what is wrong.
const PAUSE: Duration = Duration::from_millis(5);
const PATIENCE: Duration = Duration::from_millis(20);

/// A cluster, or what is like a cluster of one master: the master that sentinels watch.
#[derive(Debug)]
pub(crate) struct ClusterStore {
    router: Arc<Router>,
    /// Whether keys of different partitions must go in different calls.
    has_slots: bool,
    keyspace: Keyspace,
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
        Self { router, has_slots, record: Record::new(&prefix, partitions), keyspace: Keyspace::new(prefix), access }
    }

    /// How often a script had to be sent whole, since a server had forgotten it.
    pub(crate) fn reloads(&self) -> u64 {
        self.access.reloads()
    }

    /// When a server that is out of reach is next asked.
    pub(crate) fn next_attempt(&self) -> Option<Instant> {
        self.router.topology.next_attempt()
    }

    fn demand<'a>(&'a self, partitions: Partitions, terms: Terms, entry: &Entry<'a>) -> Demand<'a> {
        Demand::new(&self.keyspace, partitions, self.has_slots, terms, entry)
    }

    /// Asks for the decision of one entry; nobody, where it is not known who serves its slot.
    fn ask_one(
        &self,
        partitions: Partitions,
        terms: Terms,
        entry: &Entry<'_>,
    ) -> Result<Option<Asked<'static>>, Error> {
        let demand = self.demand(partitions, terms, entry);
        let Some(node) = self.router.topology.known_master(demand.slot()) else { return Ok(None) };
        flight::decide(&self.router, &node, &demand).map(Some)
    }

    /// Decides one entry, as soon as it is known who serves its slot.
    async fn decide_one(&self, partitions: Partitions, terms: Terms, entry: &Entry<'_>) -> Result<Told, Error> {
        let demand = self.demand(partitions, terms, entry);
        let node = self.router.topology.master(demand.slot()).await?;
        flight::decide(&self.router, &node, &demand)?.told().await
    }

    /// Decides one entry while it is not known for sure how the keys are divided.
    async fn decide_first(&self, used: InUse, terms: Terms, entry: &Entry<'_>) -> Result<Told, Error> {
        let told = self.decide_one(used.partitions, terms, entry).await?;
        match self.record.instead_of(used, terms.deadline).await? {
            Some(partitions) => self.decide_one(partitions, terms, entry).await,
            None => Ok(told),
        }
    }

    /// Asks each master about its entries. One that hangs holds up no other's.
    async fn ask_all(&self, partitions: Partitions, terms: Terms, entries: &[Entry<'_>]) -> Vec<Result<Told, Error>> {
        let mut by_node: Vec<(Arc<Node>, Vec<Placed<'_>>)> = Vec::new();
        let mut receipts: Vec<_> = entries.iter().map(|_| Err(late())).collect();
        for (place, entry) in entries.iter().enumerate() {
            let demand = self.demand(partitions, terms, entry);
            let master = self.router.topology.master(demand.slot());
            let node = match timeout_at(terms.deadline, master).await.unwrap_or_else(|_| Err(late())) {
                Ok(node) => node,
                Err(error) => {
                    receipts[place] = Err(error);
                    continue;
                }
            };
            let demand = (place, demand);
            match by_node.iter_mut().find(|(other, _)| Arc::ptr_eq(other, &node)) {
                Some((_, demands)) => demands.push(demand),
                None => by_node.push((node, vec![demand])),
            }
        }
        for (node, demands) in by_node {
            let (places, demands): (Vec<_>, Vec<_>) = demands.into_iter().unzip();
            let asked = flight::decide_together(&self.router, &node, demands);
            places.into_iter().zip(asked).for_each(|(place, receipt)| receipts[place] = receipt);
        }
        flight::outcomes(receipts).await
    }

    fn read_record(&self, call: Call) -> impl Future<Output = Result<Value, Error>> + Send + 'static {
        let router = Arc::clone(&self.router);
        async move { router.ask_whole(&call).await }
    }
}

/// A demand, and the place of its outcome.
type Placed<'a> = (usize, Demand<'a>);

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
    async fn ask(&self, call: &Call, first: Option<(Arc<Node>, Failure)>) -> Result<Option<Value>, Error> {
        let mut unanswered = LearnIfDropped { topology: &self.topology, armed: true };
        let outcome = self.attempts(call, first).await;
        unanswered.armed = false;
        outcome
    }

    /// The same for a call that cannot be split.
    async fn ask_whole(&self, call: &Call) -> Result<Value, Error> {
        let moving = || Error::new(ErrorKind::Cluster, "the slot is just moving to another node");
        self.ask(call, None).await?.ok_or_else(moving)
    }

    async fn attempts(&self, call: &Call, mut first: Option<(Arc<Node>, Failure)>) -> Result<Option<Value>, Error> {
        let mut last = None;
        let started = Instant::now();
        for _ in 0..ATTEMPTS {
            let (node, outcome) = match first.take() {
                Some((node, failure)) => (node, Err(failure)),
                None => self.attempt(call).await?,
            };
            let (node, outcome) = match outcome {
                Err(Failure::Ask(error, to)) => self.ask_elsewhere(node, error, &to, call).await,
                outcome => (node, outcome),
            };
            let failure = match outcome {
                Ok(value) => return Ok(Some(value)),
                Err(failure) => failure,
            };
            match self.after(&failure, &node, call) {
                Some(Next::Again) => {}
                Some(Next::AgainAfterPause) if started.elapsed() < PATIENCE => tokio::time::sleep(PAUSE).await,
                Some(Next::Split) => return Ok(None),
                Some(Next::AgainAfterPause) | None => return Err(failure.into_error()),
            }
            last = Some(failure.into_error());
        }
        Err(last.unwrap_or_else(|| Error::new(ErrorKind::Cluster, "the cluster did not run the script")))
    }

    /// Sends a call to the master of its slot. Who answered, and what.
    async fn attempt(&self, call: &Call) -> Result<(Arc<Node>, Result<Value, Failure>), Error> {
        let node = self.topology.master(call.slot()).await?;
        let link = node.link().await.inspect_err(|_| self.topology.learn_soon())?;
        let outcome = node.run(&link, call, false).await;
        Ok((node, outcome))
    }

    /// Sends a call to the node that its slot is just moving to. Who answered, and what.
    async fn ask_elsewhere(
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
    fn after(&self, failure: &Failure, node: &Arc<Node>, call: &Call) -> Option<Next> {
        match failure {
            Failure::Moved(_, to) => {
                let moved = self.topology.node_at(to, node)?;
                self.topology.moved(call.slot(), moved);
                self.topology.learn_soon();
                Some(Next::Again)
            }
            Failure::TryAgain(_) if call.entries() > 1 => Some(Next::Split),
            Failure::TryAgain(_) => Some(Next::AgainAfterPause),
            Failure::ReadOnly(_) | Failure::ClusterDown(_) | Failure::Loading(_) => {
                self.topology.learn_soon();
                Some(Next::AgainAfterPause)
            }
            Failure::Undecided(_) if call.judge_generally() => Some(Next::Again),
            Failure::Unsent(_) | Failure::NoScript(_) | Failure::NoReadOnlyForm(_) | Failure::Ask(..) => {
                Some(Next::Again)
            }
            Failure::Undecided(_) => None,
            Failure::Final(_) => {
                self.topology.learn_soon();
                None
            }
        }
    }
}

impl Route for Router {
    async fn run(&self, call: &Call, first: Option<(Arc<Node>, Failure)>) -> Result<Answers, Error> {
        if let Some(value) = self.ask(call, first).await? {
            return call.parse(value);
        }
        // While the slot is moving, its keys are on two nodes.
        let mut all = Answers::default();
        for call in call.split() {
            let answers = call.parse(self.ask_whole(&call).await?)?;
            (all.now, all.healed) = (answers.now, all.healed + answers.healed);
            all.list.extend(answers.list);
        }
        Ok(all)
    }

    fn unanswered(&self) {
        self.topology.learn_soon();
    }
}

impl Store for ClusterStore {
    fn ask<'a>(&'a self, terms: Terms, entry: &'a Entry<'a>) -> Result<Asked<'a>, Error> {
        let used = self.record.in_use(terms, std::slice::from_ref(entry), |call| self.read_record(call))?;
        if !used.is_confirmed() {
            return Ok(Asked::Begun(Box::pin(self.decide_first(used, terms, entry))));
        }
        let asked = self.ask_one(used.partitions, terms, entry)?;
        Ok(asked.unwrap_or_else(|| Asked::Begun(Box::pin(self.decide_one(used.partitions, terms, entry)))))
    }

    async fn decide(&self, terms: Terms, entries: &[Entry<'_>]) -> Vec<Result<Told, Error>> {
        let all = |error: Error| vec![Err(error); entries.len()];
        let used = match self.record.in_use(terms, entries, |call| self.read_record(call)) {
            Ok(used) => used,
            Err(error) => return all(error),
        };
        let outcomes = self.ask_all(used.partitions, terms, entries).await;
        match self.record.instead_of(used, terms.deadline).await {
            Ok(Some(partitions)) => self.ask_all(partitions, terms, entries).await,
            Ok(None) => outcomes,
            Err(error) => all(error),
        }
    }

    async fn connect(&self) -> Result<(), Error> {
        let masters = self.router.topology.masters().await?;
        try_join_all(masters.iter().map(|node| node.warm_up())).await?;
        self.record.confirm(|call| self.read_record(call)).await
    }

    async fn ping(&self) -> Result<Pong, Error> {
        let masters = self.router.topology.masters().await?;
        let pong = ping_cluster(&masters, self.keyspace.prefix()).await?;
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
