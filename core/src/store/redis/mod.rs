//! Redis and Valkey.

pub(crate) mod address;
mod cluster;
mod connection;
mod node;
mod ping;
mod reply;
mod script;
mod standalone;
mod topology;

pub(crate) use self::cluster::ClusterStore;
pub(crate) use self::standalone::RedisStore;
