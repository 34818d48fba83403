//! Redis and Valkey.

mod access;
pub(crate) mod address;
mod address_map;
mod arguments;
mod backoff;
mod batch;
mod call;
mod cluster;
mod connection;
mod credentials;
mod flight;
mod hello;
mod judging;
mod link;
mod node;
mod ping;
mod queue;
mod readings;
mod record;
mod reply;
mod script;
mod sentinel;
pub(crate) mod sentinel_address;
mod session;
mod slots;
mod standalone;
pub(crate) mod tls;
mod topology;

pub(crate) use self::access::Access;
pub(crate) use self::address_map::AddressMap;
pub(crate) use self::cluster::ClusterStore;
pub(crate) use self::queue::Receipt;
pub(crate) use self::reply::kind_of_reply;
pub(crate) use self::sentinel::Sentinels;
pub(crate) use self::standalone::RedisStore;
