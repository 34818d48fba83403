//! The scripts that grifo runs inside Redis and Valkey, each with the SHA-1 that EVALSHA names it by.
//!
//! Every algorithm is written once, in a `.lua` file of its own; the build puts them together into the
//! few scripts that are sent: [`LIMIT`] judges every algorithm, others one each, which is faster. [`ONE_BUCKET`] and
//! [`MANY_BUCKETS`] judge the commonest calls of all, checks of token buckets, and leave what is unusual to the others.
//! [`PARTITIONS`] tells into how many partitions a store's keys are divided.

/// A script as it is sent to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Script {
    /// Its name: that of the algorithm that it judges, `limit` for all of them, or `partitions`.
    pub name: &'static str,
    /// The source, as EVAL sends it.
    pub source: &'static str,
    /// The SHA-1 of the source in lower-case hexadecimal digits, as EVALSHA sends it.
    pub sha1: &'static str,
}

include!(concat!(env!("OUT_DIR"), "/scripts.rs"));
