//! One server: its connection, and how a script is run there.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Instant;

use futures_util::future::try_join_all;
use redis::{Cmd, Pipeline, Value};

use super::access::Access;
use super::address::Address;
use super::call::Call;
use super::connection::Connector;
use super::link::Link;
use super::queue::Queue;
use super::reply::Failure;
use super::script::{self, Form};
use crate::error::{Error, ErrorKind};

/// A call that judges one bucket is faster without telling the time.
const TIME_TOLD_EVERY: u32 = 32;

/// A server.
#[derive(Debug)]
pub(super) struct Node {
    address: Address,
    connector: Connector,
    access: Arc<Access>,
    queue: Queue,
    /// Calls of one caller alone.
    alone: AtomicU32,
    doubted: AtomicBool,
}

impl Node {
    pub(super) fn new(address: Address, access: Arc<Access>) -> Self {
        let connector = Connector::new(address.clone(), Arc::clone(&access));
        Self { connector, address, access, queue: Queue::default(), alone: 0.into(), doubted: false.into() }
    }

    pub(super) fn address(&self) -> &Address {
        &self.address
    }

    pub(super) fn is_connected(&self) -> bool {
        self.connector.is_connected()
    }

    /// Whether its cluster may have cut it off: at last it said that the cluster is down.
    pub(super) fn is_doubted(&self) -> bool {
        self.doubted.load(Ordering::Relaxed)
    }

    pub(super) fn set_doubted(&self, is_doubted: bool) {
        if self.is_doubted() != is_doubted {
            self.doubted.store(is_doubted, Ordering::Relaxed);
        }
    }

    /// The live connection; waits for it to be made where there is none.
    pub(super) async fn link(&self) -> Result<Arc<Link>, Error> {
        self.connector.link().await
    }

    pub(super) fn next_attempt(&self) -> Option<Instant> {
        self.connector.next_attempt()
    }

    pub(super) fn close(&self) {
        self.queue.close();
        self.connector.close();
    }

    /// The decisions that are under way to it, and those that wait.
    pub(super) const fn queue(&self) -> &Queue {
        &self.queue
    }

    /// Whether the next call of one caller alone is to tell the server's time: every so manyth, beginning with the first.
    pub(super) fn is_to_tell_time(&self) -> bool {
        self.alone.fetch_add(1, Ordering::Relaxed).is_multiple_of(TIME_TOLD_EVERY)
    }

    /// Connects and loads the scripts.
    pub(super) async fn warm_up(&self) -> Result<(), Error> {
        let link = self.link().await?;
        let load = async |command| link.ask(&command).await.map_err(Failure::into_error);
        try_join_all(script::load_all().map(load)).await.map(drop)
    }

    /// Runs a call once, or twice where the server does not have its script: a script that is not there did not run.
    /// `asking` is for a slot that is just being moved here.
    pub(super) async fn run(&self, link: &Link, call: &Call, asking: bool) -> Result<Value, Failure> {
        let outcome = self.run_cached(link, call, asking).await;
        self.judge(&outcome);
        outcome
    }

    /// What an outcome says of the node.
    fn judge(&self, outcome: &Result<Value, Failure>) {
        match outcome {
            Ok(_) => self.set_doubted(false),
            Err(Failure::ClusterDown(_)) => self.set_doubted(true),
            Err(_) => {}
        }
    }

    async fn run_cached(&self, link: &Link, call: &Call, asking: bool) -> Result<Value, Failure> {
        let seen = link.scripts_sent(call.script());
        let read_only = call.is_read_only() && link.has_read_only_forms();
        let form = if read_only { Form::ReadOnlyHash } else { Form::Hash };
        let outcome = match send(link, &call.command(form), asking).await {
            Err(Failure::NoReadOnlyForm(error)) => {
                link.forget_read_only_forms();
                Err(Failure::NoReadOnlyForm(error))
            }
            // Of all who find the script missing one sends it; the others' next try arrives behind it.
            Err(Failure::NoScript(_)) if link.may_send_script(call.script(), seen) => {
                self.access.count_reload();
                send(link, &call.command(if read_only { Form::ReadOnlySource } else { Form::Source }), asking).await
            }
            outcome => outcome,
        };
        decided(call, outcome?)
    }

    /// Runs calls once, in one write. Each has its own reply or failure.
    /// # Errors
    /// Why there is no connection.
    pub(super) async fn run_all(&self, calls: &[Call]) -> Result<Vec<Result<Value, Failure>>, Error> {
        let link = self.link().await?;
        if let [call] = calls {
            return Ok(vec![self.run(&link, call, false).await]);
        }
        let form = |call: &Call| {
            if call.is_read_only() && link.has_read_only_forms() { Form::ReadOnlyHash } else { Form::Hash }
        };
        let mut commands = Pipeline::with_capacity(calls.len());
        for call in calls {
            commands.add_command(call.command(form(call)));
        }
        match link.ask_all(&commands).await {
            Ok(replies) => {
                replies.iter().for_each(|reply| self.judge(reply));
                Ok(calls.iter().zip(replies).map(|(call, reply)| decided(call, reply?)).collect())
            }
            Err(Failure::Unsent(error)) => Ok(calls.iter().map(|_| Err(Failure::Unsent(error.clone()))).collect()),
            Err(failure) => {
                let error = failure.into_error();
                Ok(calls.iter().map(|_| Err(Failure::Final(error.clone()))).collect())
            }
        }
    }
}

/// The reply, unless the script did nothing.
fn decided(call: &Call, reply: Value) -> Result<Value, Failure> {
    if call.is_left_undecided(&reply) {
        let error = Error::new(ErrorKind::Script, "the server holds something unusual under this key");
        return Err(Failure::Undecided(error));
    }
    Ok(reply)
}

async fn send(link: &Link, command: &Cmd, asking: bool) -> Result<Value, Failure> {
    if asking { link.ask_with_asking(command).await } else { link.ask(command).await }
}
