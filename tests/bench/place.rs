//! Where decisions are made: one server, a cluster of three masters, or this process.

use std::time::Duration;

use grifo_tests::{Cluster, CommandStats, Server, ServerBinary};

use crate::cpu;

const MASTERS: usize = 3;
/// All ways in which a script is run.
const SCRIPT_CALLS: [&str; 4] = ["evalsha", "eval", "evalsha_ro", "eval_ro"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Topology {
    Memory,
    Standalone,
    Cluster,
}

impl Topology {
    pub(crate) const ALL: [Self; 3] = [Self::Standalone, Self::Cluster, Self::Memory];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Standalone => "standalone",
            Self::Cluster => "3-master cluster",
        }
    }
}

#[derive(Debug)]
pub(crate) enum Place {
    Memory,
    Standalone(Server),
    Cluster(Cluster),
}

impl Place {
    pub(crate) fn start(topology: Topology, binary: &ServerBinary) -> Self {
        match topology {
            Topology::Memory => Self::Memory,
            Topology::Standalone => Self::Standalone(Server::start(binary.kind)),
            Topology::Cluster => Self::Cluster(Cluster::start(binary.kind, MASTERS, 0)),
        }
    }

    pub(crate) fn servers(&self) -> &[Server] {
        match self {
            Self::Memory => &[],
            Self::Standalone(server) => std::slice::from_ref(server),
            Self::Cluster(cluster) => cluster.nodes(),
        }
    }

    /// As grifo reads it.
    pub(crate) fn url(&self) -> String {
        match self {
            Self::Memory => "memory://".to_owned(),
            Self::Standalone(server) => server.url(),
            Self::Cluster(cluster) => cluster.url(),
        }
    }

    /// Forgets all keys; scripts stay.
    pub(crate) fn clear(&self) {
        for server in self.servers() {
            server.command::<(), _>(&["FLUSHALL"]);
        }
    }

    /// Processor time of the servers, where the system tells it.
    pub(crate) fn cpu(&self) -> Option<Duration> {
        self.servers().iter().map(|server| cpu::of(server.pid())).sum()
    }

    pub(crate) fn reset_calls(&self) {
        self.servers().iter().for_each(CommandStats::reset);
    }

    /// Script calls since the last reset.
    pub(crate) fn calls(&self) -> u64 {
        let of = |server| {
            let stats = CommandStats::read(server);
            SCRIPT_CALLS.iter().map(|name| stats.calls(name)).sum::<u64>()
        };
        self.servers().iter().map(of).sum()
    }
}
