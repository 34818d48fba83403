//! One server: its connection, and how a script is run there.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use futures_util::future::try_join_all;
use redis::{Cmd, Value};

use super::access::Access;
use super::address::Address;
use super::connection::Connector;
use super::link::Link;
use super::reply::Failure;
use super::script::{self, Call, Form};
use crate::error::Error;

/// A server.
#[derive(Debug)]
pub(super) struct Node {
    address: Address,
    connector: Connector,
    access: Arc<Access>,
    doubted: AtomicBool,
}

impl Node {
    pub(super) fn new(address: Address, access: Arc<Access>) -> Self {
        Self { connector: Connector::new(address.clone(), Arc::clone(&access)), address, access, doubted: false.into() }
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
        self.connector.close();
    }

    /// Connects and loads the scripts.
    pub(super) async fn warm_up(&self) -> Result<(), Error> {
        let link = self.link().await?;
        let load = async |script| link.ask(&script::load(script)).await.map_err(Failure::into_error);
        try_join_all(script::JUDGES.iter().map(load)).await.map(drop)
    }

    /// Runs a call once, or twice where the server does not have its script: a script that is not there did not run.
    /// `asking` is for a slot that is just being moved here.
    pub(super) async fn run(&self, link: &Link, call: &Call, asking: bool) -> Result<Value, Failure> {
        let outcome = self.run_cached(link, call, asking).await;
        match &outcome {
            Ok(_) => self.set_doubted(false),
            Err(Failure::ClusterDown(_)) => self.set_doubted(true),
            Err(_) => {}
        }
        outcome
    }

    async fn run_cached(&self, link: &Link, call: &Call, asking: bool) -> Result<Value, Failure> {
        let seen = link.scripts_sent(call.script());
        let read_only = call.is_read_only() && link.has_read_only_forms();
        let form = if read_only { Form::ReadOnlyHash } else { Form::Hash };
        match send(link, &call.command(form), asking).await {
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
        }
    }
}

async fn send(link: &Link, command: &Cmd, asking: bool) -> Result<Value, Failure> {
    if asking { link.ask_with_asking(command).await } else { link.ask(command).await }
}
