//! Where the limit lives: a cluster of the demo's own, a server that is named, or the embedded store.

use std::panic;

use grifo_tests::server_binary::{self, ServerKind};
use grifo_tests::{Cluster, ClusterOptions};

use crate::masters;
use crate::screen::{Screen, Style};
use crate::{LIMIT, WORKERS};

/// In milliseconds. Long enough that no node is taken for dead because this machine is busy; one that dies is replaced
/// a second or two later.
const NODE_TIMEOUT: &str = "2000";
pub(crate) const MASTERS: usize = 3;
/// Each master has one.
const REPLICAS: usize = 1;

#[derive(Debug)]
pub(crate) enum Place {
    /// Runs as long as this lives.
    Own(Box<Cluster>),
    Named(String),
    Embedded {
        why: String,
    },
}

impl Place {
    pub(crate) fn find(screen: &mut Screen) -> Result<Self, String> {
        match std::env::var("GRIFO_URL").ok().filter(|url| !url.is_empty()) {
            Some(url) if url.starts_with("memory:") => {
                Ok(Self::Embedded { why: "GRIFO_URL asks for the embedded store".to_owned() })
            }
            Some(url) => Ok(Self::Named(url)),
            None => match server() {
                Ok(kind) => {
                    screen.say(Style::Dim, &format!("Starting {MASTERS} masters and their replicas."));
                    start_cluster(kind).map(|cluster| Self::Own(Box::new(cluster)))
                }
                Err(why) => Ok(Self::Embedded { why: format!("No server can be had ({why})") }),
            },
        }
    }

    pub(crate) fn url(&self) -> String {
        match self {
            Self::Own(cluster) => cluster.url(),
            Self::Named(url) => url.clone(),
            Self::Embedded { .. } => "memory://".to_owned(),
        }
    }

    pub(crate) const fn is_embedded(&self) -> bool {
        matches!(self, Self::Embedded { .. })
    }

    pub(crate) fn is_cluster(&self) -> bool {
        masters::is_cluster(&self.url())
    }

    /// What takes part.
    pub(crate) const fn noun(&self) -> &'static str {
        if self.is_embedded() { "thread" } else { "process" }
    }

    pub(crate) fn introduction(&self, server: &str) -> String {
        match self {
            Self::Own(cluster) => {
                let addresses = |nodes: &[usize]| {
                    let all: Vec<_> = nodes.iter().map(|node| cluster.node(*node).addr().to_string()).collect();
                    all.join(" ")
                };
                let all: Vec<usize> = (0..cluster.nodes().len()).collect();
                let (masters, replicas) = all.split_at(MASTERS);
                format!(
                    "{WORKERS} processes share one limit of {LIMIT} on a cluster of {server}.\n  masters   {}\n  replicas  {}",
                    addresses(masters),
                    addresses(replicas)
                )
            }
            // The URL may hold a password, so it is not shown.
            Self::Named(_) => {
                format!("{WORKERS} processes share one limit of {LIMIT} on {server}, the server that GRIFO_URL names.")
            }
            Self::Embedded { why } => format!(
                "{why}.\nAll happens in this process, with threads in place of processes.\n\
                 {WORKERS} threads share one limit of {LIMIT} on the embedded store."
            ),
        }
    }
}

/// The server to use, if this machine has one.
fn server() -> Result<ServerKind, String> {
    quietly(|| server_binary::installed()[0].kind)
}

fn start_cluster(kind: ServerKind) -> Result<Cluster, String> {
    let mut options = ClusterOptions::new(kind, MASTERS, REPLICAS);
    options.args = vec!["--cluster-node-timeout".to_owned(), NODE_TIMEOUT.to_owned()];
    quietly(|| Cluster::start_with(options))
        .map_err(|why| format!("the cluster does not start ({why}); GRIFO_URL=memory:// needs none"))
}

/// The harness panics where something is missing; here that is a message.
fn quietly<T>(start: impl FnOnce() -> T + panic::UnwindSafe) -> Result<T, String> {
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|_| {}));
    let outcome = panic::catch_unwind(start);
    panic::set_hook(hook);
    outcome.map_err(|payload| {
        let message = payload.downcast_ref::<String>().map_or("it does not start", String::as_str);
        message.lines().next().unwrap_or_default().to_owned()
    })
}
