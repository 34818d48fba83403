//! Standalone Redis or Valkey.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::address::Address;
use super::node::Node;
use super::ping::ping;
use super::reply::Failure;
use super::script::Call;
use crate::error::{Error, ErrorKind};
use crate::store::{Answers, Entry, Operation, Pong, Store};

/// How often a request that surely did not run is sent again, before the deadline may end it.
const ATTEMPTS: usize = 5;
/// The pause before asking again a server that is still loading.
const LOADING_PAUSE: Duration = Duration::from_millis(10);

/// A standalone server.
#[derive(Debug)]
pub(crate) struct RedisStore {
    node: Node,
    prefix: String,
    reloads: Arc<AtomicU64>,
}

impl RedisStore {
    pub(crate) fn new(address: Address, prefix: String, connect_timeout: Duration) -> Self {
        let reloads = Arc::new(AtomicU64::new(0));
        Self { node: Node::new(address, connect_timeout, Arc::clone(&reloads)), prefix, reloads }
    }

    /// How often a script had to be sent whole, since the server had forgotten it.
    pub(crate) fn reloads(&self) -> u64 {
        self.reloads.load(Ordering::Relaxed)
    }

    /// When the server is next asked, if it is not now.
    pub(crate) fn next_attempt(&self) -> Option<Instant> {
        self.node.next_attempt()
    }

    /// Sends a call until it ran, or failed in a way that leaves open whether it ran.
    async fn run(&self, call: &Call) -> Result<Answers, Error> {
        let mut last = None;
        let mut attempts = 0;
        while attempts < ATTEMPTS {
            attempts += 1;
            let link = self.node.link().await?;
            last = Some(match self.node.run(&link, call, false).await {
                Ok(value) => return call.parse(value),
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
}

impl Store for RedisStore {
    async fn call(&self, operation: Operation, entries: &[Entry<'_>], now: Option<u64>) -> Result<Answers, Error> {
        self.run(&Call::new(&self.prefix, operation, entries, now)).await
    }

    async fn connect(&self) -> Result<(), Error> {
        self.node.warm_up().await
    }

    async fn ping(&self) -> Result<Pong, Error> {
        ping(&self.node, &self.prefix).await
    }

    fn close(&self) {
        self.node.close();
    }
}
