//! Exact distributed rate limiting: limits live in Redis or Valkey, are decided there in one step, and never take the
//! service down when the store is slow or gone.
//!
//! A [`Client`] holds the connection to one store. A [`Limiter`] is a name and 1 to 4 [`Limit`]s on it. Asked about a key, it
//! answers with a [`Decision`].
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), grifo::Error> {
//! use std::time::Duration;
//!
//! let client = grifo::Client::builder("memory://").timeout(Duration::from_millis(50)).build()?;
//! let api = client.limiter("api", "100/min burst 20 + 1000/h")?;
//! let decision = api.check("user:42").await?;
//! if !decision.allowed {
//!     println!("come back in {:?}", decision.retry_after);
//! }
//! # Ok(()) }
//! ```
//!
//! If the store cannot decide within 50 ms, [`FailurePolicy::Open`] allows the call unless another policy is chosen. With a
//! `tracing` subscriber one warning is logged when the policy takes over, and one line when the store decides again.
//!
//! `rediss://` speaks TLS. That is the feature `tls`, which is on unless `default-features = false` turns it off.
//!
//! Calls of `redis://` need a Tokio runtime with timers and I/O; those of `memory://` need none, unless they have to wait.

mod algorithm;
mod client;
mod clock;
mod credentials;
mod decision;
mod error;
mod guard;
mod key;
mod limit;
mod limiter;
mod stats;
mod store;
pub mod testing;

pub use client::{Client, ClientBuilder};
pub use clock::Clock;
pub use credentials::Credentials;
pub use decision::{Decision, LimitDecision, LimitDecisions, Source};
pub use error::{Error, ErrorKind};
pub use guard::FailurePolicy;
pub use limit::{Algorithm, Limit, Limits};
pub use limiter::Limiter;
pub use stats::Stats;
pub use store::Pong;

/// The examples of the README, compiled and run. They show what the default features can do.
#[cfg(all(doctest, feature = "tls"))]
#[doc = include_str!("../../README.md")]
struct Readme;
