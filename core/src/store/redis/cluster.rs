//! Redis or Valkey Cluster.
//!
//! One multiplexed connection for each master, and a map from partitions to masters of our own, rather than the cluster
//! connection of the `redis` crate: that one answers a missing script by loading it on all nodes and waiting for each, and
//! routes by slots what here is routed by partitions. A node that hangs holds up nobody but the callers of its own keys.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::address::Address;
use super::node::Node;
use super::ping::ping;
use super::reply::Failure;
use super::script::Call;
use super::topology::Topology;
use crate::error::{Error, ErrorKind};
use crate::key::partition_of;
use crate::store::{Answers, Entry, Operation, Pong, Store};

/// How often a request that surely did not run is sent again, before the deadline may end it.
const ATTEMPTS: usize = 16;
/// The pause before asking again a cluster that is just changing, and how many there may be: so that the default deadline
/// leaves time to say what is wrong.
const PAUSE: Duration = Duration::from_millis(5);
const PAUSES: usize = 6;

/// A cluster.
#[derive(Debug)]
pub(crate) struct ClusterStore {
    topology: Topology,
    prefix: String,
    reloads: Arc<AtomicU64>,
}

/// What to do after a request that did not run.
enum Next {
    Again,
    AgainAfterPause,
    /// The keys of the call are on two nodes just now.
    Split,
}

impl ClusterStore {
    pub(crate) fn new(seeds: Vec<Address>, prefix: String, connect_timeout: Duration) -> Self {
        let reloads = Arc::new(AtomicU64::new(0));
        Self { topology: Topology::new(seeds, connect_timeout, Arc::clone(&reloads)), prefix, reloads }
    }

    /// How often a script had to be sent whole, since a server had forgotten it.
    pub(crate) fn reloads(&self) -> u64 {
        self.reloads.load(Ordering::Relaxed)
    }

    /// When a server that is out of reach is next asked.
    pub(crate) fn next_attempt(&self) -> Option<Instant> {
        self.topology.next_attempt()
    }

    /// Sends a call on one partition until it ran, or failed in a way that leaves open whether it ran.
    /// None when its entries must be sent one by one.
    async fn run(&self, call: &Call, partition: usize) -> Result<Option<Answers>, Error> {
        let mut unanswered = LearnIfDropped { topology: &self.topology, armed: true };
        let outcome = self.attempts(call, partition).await;
        unanswered.armed = false;
        outcome
    }

    async fn attempts(&self, call: &Call, partition: usize) -> Result<Option<Answers>, Error> {
        let mut last = None;
        let mut pauses = 0;
        for _ in 0..ATTEMPTS {
            let node = self.topology.master(partition).await?;
            let link = match node.link().await {
                Ok(link) => link,
                Err(error) => {
                    self.topology.learn_soon();
                    return Err(error);
                }
            };
            let failure = match node.run(&link, call, false).await {
                Ok(value) => return call.parse(value).map(Some),
                Err(Failure::Ask(error, to)) => match self.ask(&node, &to, call).await {
                    Ok(answers) => return Ok(Some(answers)),
                    Err(None) => Failure::Unsent(error),
                    Err(Some(failure)) => failure,
                },
                Err(failure) => failure,
            };
            match self.after(&failure, &node, partition, call.entries()) {
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

    /// Sends a call to the node that its slot is just moving to.
    async fn ask(&self, answered: &Node, to: &str, call: &Call) -> Result<Answers, Option<Failure>> {
        let node = self.topology.node_at(to, answered).ok_or(None)?;
        let link = node.link().await.map_err(|_| None)?;
        let value = node.run(&link, call, true).await.map_err(Some)?;
        call.parse(value).map_err(|error| Some(Failure::Final(error)))
    }

    /// What to do after a failure; none when it is final.
    fn after(&self, failure: &Failure, node: &Arc<Node>, partition: usize, entries: usize) -> Option<Next> {
        match failure {
            Failure::Moved(_, to) => {
                let moved = self.topology.node_at(to, node)?;
                self.topology.moved(partition, moved);
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
        let Some(first) = entries.first() else { return Ok(Answers::default()) };
        let partition = partition_of(first.key);
        if let Some(answers) = self.run(&Call::new(&self.prefix, operation, entries, now), partition).await? {
            return Ok(answers);
        }
        let mut all = Answers::default();
        for entry in entries {
            let call = Call::new(&self.prefix, operation, std::slice::from_ref(entry), now);
            let split = || Error::new(ErrorKind::Cluster, "the slot is just moving to another node");
            let answers = self.run(&call, partition).await?.ok_or_else(split)?;
            all.now = answers.now;
            all.healed += answers.healed;
            all.list.extend(answers.list);
        }
        Ok(all)
    }

    async fn connect(&self) -> Result<(), Error> {
        for node in self.topology.masters().await? {
            node.warm_up().await?;
        }
        Ok(())
    }

    async fn ping(&self) -> Result<Pong, Error> {
        let masters = self.topology.masters().await?;
        let mut worst: Option<Pong> = None;
        for node in masters {
            let pong = ping(&node, &self.prefix).await?;
            if worst.as_ref().is_none_or(|worst| pong.round_trip > worst.round_trip) {
                worst = Some(pong);
            }
        }
        worst.ok_or_else(|| Error::new(ErrorKind::Cluster, "the cluster has no master that serves slots"))
    }

    fn close(&self) {
        self.topology.close();
    }
}

/// A caller whose deadline ended got no answer: perhaps another node serves the partition by now.
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
