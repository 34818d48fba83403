//! Real servers, faults and observers for the tests of `grifo`.
//!
//! | module | what it gives |
//! |---|---|
//! | [`certificates`] | certificates and keys for servers and clients |
//! | [`server_binary`] | which servers this machine has, and where |
//! | [`server`] | starts, stops, freezes, kills and restarts one server |
//! | [`cluster`] | a cluster of servers: failover, resharding, nodes that come and go |
//! | [`cluster_case`] | what the cases of a cluster share |
//! | [`cluster_options`] | passwords, addresses and coverage of a cluster |
//! | [`cluster_view`] | what a node says about its cluster |
//! | [`sentinel`] | a master, its replicas and the sentinels that watch them |
//! | [`proxy`] | a TCP proxy that delays, drops, cuts, stalls or refuses |
//! | [`tls_front`] | TLS in front of a server, with certificates of its own |
//! | [`tls_cluster`] | a cluster that is spoken to with TLS |
//! | [`listener`] | every line that the library logs |
//! | [`monitor`] | every command a server ran during a piece of code |
//! | [`declared`] | whether scripts touch only the keys that were declared |
//! | [`command_stats`] | how often and how long a server ran each command |
//! | [`reference`](mod@reference) | the reference implementation, asked in batches |
//! | [`scenario`] | the steps of the shared vectors, played on a client |
//! | [`ports`] | free loopback ports that nothing else is handed by chance |
//! | [`case`] | what the field cases share: their stores, and calls at a chosen time |
//! | [`vault`] | a provider of credentials that a test directs |
//! | [`workers`] | other processes that hammer the same keys |
//! | [`scratch`] | the folder all servers live in, and the guard that clears it |

pub mod case;
pub mod certificates;
pub mod cluster;
pub mod cluster_case;
pub mod cluster_options;
mod cluster_slots;
pub mod cluster_view;
pub mod command_stats;
pub mod declared;
pub mod listener;
pub mod monitor;
pub mod ports;
pub mod proxy;
pub mod reference;
pub mod scenario;
pub mod scratch;
pub mod sentinel;
pub mod server;
pub mod server_binary;
pub mod tls_cluster;
pub mod tls_front;
pub mod vault;
mod wait;
pub mod workers;

pub use certificates::Certificates;
pub use cluster::Cluster;
pub use cluster_options::{ClusterOptions, Endpoint};
pub use command_stats::CommandStats;
pub use listener::Listener;
pub use monitor::{Monitor, MonitorLine};
pub use proxy::{Mode, Proxy};
pub use reference::Reference;
pub use sentinel::{SentinelOptions, Sentinels};
pub use server::Server;
pub use server_binary::{ServerBinary, ServerKind};
pub use tls_cluster::TlsCluster;
pub use tls_front::{TlsFront, TlsOptions};
