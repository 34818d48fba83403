//! One server of Redis or Valkey, without a cluster.

use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::Value;

use super::access::Access;
use super::address::Address;
use super::batch::{Demand, Keyspace};
use super::call::Call;
use super::flight::{self, Route};
use super::node::Node;
use super::ping::ping;
use super::record::{InUse, Record};
use super::reply::Failure;
use crate::error::{Error, ErrorKind};
use crate::key::Partitions;
use crate::store::{Answers, Asked, Entry, Pong, Store, Terms, Told};

/// How often a request that surely did not run is sent again, before the deadline may end it.
const ATTEMPTS: usize = 5;
/// The pause before asking again a server that is still loading.
const LOADING_PAUSE: Duration = Duration::from_millis(10);

/// A standalone server.
#[derive(Debug)]
pub(crate) struct RedisStore {
    server: Arc<Server>,
    keyspace: Keyspace,
    record: Record,
    access: Arc<Access>,
}

impl RedisStore {
    pub(crate) fn new(address: Address, prefix: String, partitions: Option<Partitions>, access: Access) -> Self {
        let access = Arc::new(access);
        let server = Arc::new(Server { node: Arc::new(Node::new(address, Arc::clone(&access))) });
        Self { server, record: Record::new(&prefix, partitions), keyspace: Keyspace::new(prefix), access }
    }

    /// How often a script had to be sent whole, since the server had forgotten it.
    pub(crate) fn reloads(&self) -> u64 {
        self.access.reloads()
    }

    /// When the server is next asked, if it is not now.
    pub(crate) fn next_attempt(&self) -> Option<Instant> {
        self.server.node.next_attempt()
    }

    fn demand<'a>(&'a self, partitions: Partitions, terms: Terms, entry: &Entry<'a>) -> Demand<'a> {
        // All entries may share a call.
        Demand::new(&self.keyspace, partitions, false, terms, entry)
    }

    fn ask_one(&self, partitions: Partitions, terms: Terms, entry: &Entry<'_>) -> Result<Asked<'static>, Error> {
        flight::decide(&self.server, &self.server.node, &self.demand(partitions, terms, entry))
    }

    /// Decides one entry while it is not known for sure how the keys are divided.
    async fn decide_first(&self, used: InUse, terms: Terms, entry: &Entry<'_>) -> Result<Told, Error> {
        let told = self.ask_one(used.partitions, terms, entry)?.told().await?;
        match self.record.instead_of(used, terms.deadline).await? {
            Some(partitions) => self.ask_one(partitions, terms, entry)?.told().await,
            None => Ok(told),
        }
    }

    async fn ask_all(&self, partitions: Partitions, terms: Terms, entries: &[Entry<'_>]) -> Vec<Result<Told, Error>> {
        let demands = entries.iter().map(|entry| self.demand(partitions, terms, entry));
        flight::outcomes(flight::decide_together(&self.server, &self.server.node, demands)).await
    }

    fn read_record(&self, call: Call) -> impl Future<Output = Result<Value, Error>> + Send + 'static {
        let server = Arc::clone(&self.server);
        async move { server.ask(&call, None).await }
    }
}

/// The server, which is always where it is.
#[derive(Debug)]
struct Server {
    node: Arc<Node>,
}

impl Server {
    /// Sends a call until it ran, or failed in a way that leaves open whether it ran.
    async fn ask(&self, call: &Call, mut first: Option<Failure>) -> Result<Value, Error> {
        let mut last = None;
        let mut attempts = 0;
        while attempts < ATTEMPTS {
            attempts += 1;
            let link = self.node.link().await?;
            let outcome = match first.take() {
                Some(failure) => Err(failure),
                None => self.node.run(&link, call, false).await,
            };
            last = Some(match outcome {
                Ok(value) => return Ok(value),
                Err(Failure::Loading(error)) => {
                    // It will serve by itself; only the deadline ends the wait for that.
                    attempts -= 1;
                    tokio::time::sleep(LOADING_PAUSE).await;
                    error
                }
                Err(Failure::ReadOnly(error)) if link.give_up_if_old() => error,
                Err(Failure::Undecided(error)) if call.judge_generally() => error,
                Err(Failure::Unsent(error) | Failure::NoScript(error) | Failure::NoReadOnlyForm(error)) => error,
                Err(failure) => return Err(failure.into_error()),
            });
        }
        Err(last.unwrap_or_else(|| Error::new(ErrorKind::Unavailable, "the server did not run the script")))
    }
}

impl Route for Server {
    async fn run(&self, call: &Call, first: Option<(Arc<Node>, Failure)>) -> Result<Answers, Error> {
        call.parse(self.ask(call, first.map(|(_, failure)| failure)).await?)
    }

    fn unanswered(&self) {}
}

impl Store for RedisStore {
    fn ask<'a>(&'a self, terms: Terms, entry: &'a Entry<'a>) -> Result<Asked<'a>, Error> {
        let used = self.record.in_use(terms, std::slice::from_ref(entry), |call| self.read_record(call))?;
        if used.is_confirmed() {
            return self.ask_one(used.partitions, terms, entry);
        }
        Ok(Asked::Begun(Box::pin(self.decide_first(used, terms, entry))))
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
        self.server.node.warm_up().await?;
        self.record.confirm(|call| self.read_record(call)).await
    }

    async fn ping(&self) -> Result<Pong, Error> {
        ping(&self.server.node, self.keyspace.prefix()).await
    }

    fn close(&self) {
        self.record.close();
        self.server.node.close();
    }
}
