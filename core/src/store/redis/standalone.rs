//! One server of Redis or Valkey, without a cluster.

use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::Value;

use super::access::Access;
use super::address::Address;
use super::node::Node;
use super::ping::ping;
use super::record::Record;
use super::reply::Failure;
use super::script::Call;
use crate::error::{Error, ErrorKind};
use crate::key::Partitions;
use crate::store::{Answers, Entry, Operation, Pong, Store};

/// How often a request that surely did not run is sent again, before the deadline may end it.
const ATTEMPTS: usize = 5;
/// The pause before asking again a server that is still loading.
const LOADING_PAUSE: Duration = Duration::from_millis(10);

/// A standalone server.
#[derive(Debug)]
pub(crate) struct RedisStore {
    node: Arc<Node>,
    prefix: String,
    record: Record,
    access: Arc<Access>,
}

impl RedisStore {
    pub(crate) fn new(address: Address, prefix: String, partitions: Option<Partitions>, access: Access) -> Self {
        let access = Arc::new(access);
        let node = Arc::new(Node::new(address, Arc::clone(&access)));
        Self { node, record: Record::new(&prefix, partitions), prefix, access }
    }

    /// How often a script had to be sent whole, since the server had forgotten it.
    pub(crate) fn reloads(&self) -> u64 {
        self.access.reloads()
    }

    /// When the server is next asked, if it is not now.
    pub(crate) fn next_attempt(&self) -> Option<Instant> {
        self.node.next_attempt()
    }

    async fn decide(
        &self,
        partitions: Partitions,
        operation: Operation,
        entries: &[Entry<'_>],
        now: Option<u64>,
    ) -> Result<Answers, Error> {
        let call = Call::new(&self.prefix, partitions, operation, entries, now);
        call.parse(run(&self.node, &call).await?)
    }

    fn read_record(&self, call: Call) -> impl Future<Output = Result<Value, Error>> + Send + 'static {
        let node = Arc::clone(&self.node);
        async move { run(&node, &call).await }
    }
}

/// Sends a call until it ran, or failed in a way that leaves open whether it ran.
async fn run(node: &Node, call: &Call) -> Result<Value, Error> {
    let mut last = None;
    let mut attempts = 0;
    while attempts < ATTEMPTS {
        attempts += 1;
        let link = node.link().await?;
        last = Some(match node.run(&link, call, false).await {
            Ok(value) => return Ok(value),
            Err(Failure::Loading(error)) => {
                // It will serve by itself; only the deadline ends the wait for that.
                attempts -= 1;
                tokio::time::sleep(LOADING_PAUSE).await;
                error
            }
            Err(Failure::ReadOnly(error)) if link.give_up_if_old() => error,
            Err(Failure::Unsent(error) | Failure::NoScript(error) | Failure::NoReadOnlyForm(error)) => error,
            Err(failure) => return Err(failure.into_error()),
        });
    }
    Err(last.unwrap_or_else(|| Error::new(ErrorKind::Unavailable, "the server did not run the script")))
}

impl Store for RedisStore {
    async fn call(&self, operation: Operation, entries: &[Entry<'_>], now: Option<u64>) -> Result<Answers, Error> {
        let used = self.record.in_use(operation, entries, now, |call| self.read_record(call))?;
        let answers = self.decide(used.partitions, operation, entries, now).await?;
        match self.record.instead_of(used).await? {
            Some(partitions) => self.decide(partitions, operation, entries, now).await,
            None => Ok(answers),
        }
    }

    async fn connect(&self) -> Result<(), Error> {
        self.node.warm_up().await?;
        self.record.confirm(|call| self.read_record(call)).await
    }

    async fn ping(&self) -> Result<Pong, Error> {
        ping(&self.node, &self.prefix).await
    }

    fn close(&self) {
        self.record.close();
        self.node.close();
    }
}
