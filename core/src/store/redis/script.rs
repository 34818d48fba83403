//! The scripts that are sent, and how they are named to the server.

use grifo_lua::Script;
use redis::{Cmd, cmd};

use crate::limit::{Algorithm, Limit};
use crate::store::Operation;

/// The script that judges Limits of every algorithm.
pub(super) const LIMIT: usize = 0;
/// Those that judge checks of token buckets alone, for less.
pub(super) const ONE_BUCKET: usize = 5;
pub(super) const MANY_BUCKETS: usize = 6;
/// The script for the record of partitions.
pub(super) const RECORD: usize = 7;

/// All scripts. Those before the record's decide.
const SCRIPTS: [Script; 8] = [
    grifo_lua::LIMIT,
    grifo_lua::TOKEN_BUCKET,
    grifo_lua::SLIDING_WINDOW,
    grifo_lua::SLIDING_WINDOW_COUNTER,
    grifo_lua::FIXED_WINDOW,
    grifo_lua::ONE_BUCKET,
    grifo_lua::MANY_BUCKETS,
    grifo_lua::PARTITIONS,
];
pub(super) const COUNT: usize = SCRIPTS.len();

/// How a script is named to the server. The read-only forms work while the server refuses writes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Form {
    Hash,
    ReadOnlyHash,
    Source,
    ReadOnlySource,
}

impl Form {
    /// The command that runs a script, without its keys and arguments.
    pub(super) fn command(self, script: usize, arguments: usize, bytes: usize) -> Cmd {
        let script = &SCRIPTS[script];
        let (name, script) = match self {
            Self::Hash => ("EVALSHA", script.sha1),
            Self::ReadOnlyHash => ("EVALSHA_RO", script.sha1),
            Self::Source => ("EVAL", script.source),
            Self::ReadOnlySource => ("EVAL_RO", script.source),
        };
        let mut command = Cmd::with_capacity(arguments + 3, bytes + name.len() + script.len() + 8);
        command.arg(name).arg(script);
        command
    }
}

/// Loads each script that decides by running it on no key, which takes fewer rights than SCRIPT LOAD.
pub(super) fn load_all() -> impl Iterator<Item = Cmd> {
    SCRIPTS[..RECORD].iter().map(|script| on_no_key("EVAL", script))
}

/// Runs the script of every algorithm on no key.
pub(super) fn try_out(command: &str) -> Cmd {
    on_no_key(command, &SCRIPTS[LIMIT])
}

fn on_no_key(command: &str, script: &Script) -> Cmd {
    let mut command = cmd(command);
    command.arg(script.source).arg(0).arg("0").arg(Operation::Peek.name()).arg(0);
    command
}

/// The script that knows the algorithms of some Limits, and as few others as can be.
pub(super) fn for_limits<'a>(limits: impl IntoIterator<Item = &'a Limit>) -> usize {
    let mut algorithms = limits.into_iter().map(Limit::algorithm);
    let Some(first) = algorithms.next() else { return LIMIT };
    if algorithms.any(|other| other != first) {
        return LIMIT;
    }
    match first {
        Algorithm::TokenBucket => 1,
        Algorithm::SlidingWindow => 2,
        Algorithm::SlidingWindowCounter => 3,
        Algorithm::FixedWindow => 4,
    }
}
