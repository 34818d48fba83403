//! What a client can be told beside its URL.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::Client;
use crate::clock::{Clock, MonotonicClock};
use crate::error::{Error, ErrorKind};
use crate::guard::{FailurePolicy, Fallback, Guard, Options, Share, check_share, check_timeout};
use crate::key::{Partitions, check_prefix};
use crate::limit::MAX_LIMITS;
use crate::store::AnyStore;
use crate::store::memory::MemoryStore;
use crate::store::redis::address::{Address, CLUSTER_SCHEME};
use crate::store::redis::{Access, ClusterStore, RedisStore};

const DEFAULT_TIMEOUT: Duration = Duration::from_millis(50);
const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
const DEFAULT_PREFIX: &str = "grifo";
const DEFAULT_MAX_KEYS: usize = 100_000;

/// Collects the options of a [`Client`]. Made by [`Client::builder`].
#[derive(Clone)]
#[must_use = "a builder does nothing until it is built"]
pub struct ClientBuilder {
    url: String,
    timeout: Duration,
    connect_timeout: Duration,
    on_failure: FailurePolicy,
    fallback_share: Option<f64>,
    prefix: String,
    partitions: Option<u16>,
    max_keys: usize,
    clock: Option<Arc<dyn Clock>>,
}

impl ClientBuilder {
    pub(super) fn new(url: String) -> Self {
        Self {
            url,
            timeout: DEFAULT_TIMEOUT,
            connect_timeout: DEFAULT_CONNECT_TIMEOUT,
            on_failure: FailurePolicy::default(),
            fallback_share: None,
            prefix: DEFAULT_PREFIX.to_owned(),
            partitions: None,
            max_keys: DEFAULT_MAX_KEYS,
            clock: None,
        }
    }

    /// The time that a whole decision may take, retries included. Default 50 ms. Then the failure policy answers.
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// The time that one attempt to connect may take, in the background. Default 1 s.
    pub const fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Who answers when the store cannot do so in time. Default [`FailurePolicy::Open`].
    pub const fn on_failure(mut self, policy: FailurePolicy) -> Self {
        self.on_failure = policy;
        self
    }

    /// The part of each Limit that this instance may admit on its own under [`FailurePolicy::Local`]: more than 0 and at
    /// most 1, the default. With n instances behind one limit give 1/n, lest they admit n times the limit in an outage.
    pub const fn fallback_share(mut self, share: f64) -> Self {
        self.fallback_share = Some(share);
        self
    }

    /// The beginning of all keys in the store, up to 64 bytes without braces. Default `grifo`.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Into how many partitions the keys of the store are divided, each with a hash slot of its own: a power of two, at
    /// least 16 for each master of a cluster, at most 4096. Default: as the store has recorded under the prefix, else 64.
    /// Where it has recorded another number, the failure policy answers every call, with the reason
    /// [`ErrorKind::InvalidOptions`]. To change the number, choose another prefix.
    pub const fn partitions(mut self, partitions: u16) -> Self {
        self.partitions = Some(partitions);
        self
    }

    /// How many keys are kept in memory, by `memory://` and by the local fallback, each as often as its limiter has Limits;
    /// at least 4. Default 100,000, at about 250 bytes each; a sliding window adds 16 bytes for each hit.
    pub const fn max_keys(mut self, max_keys: usize) -> Self {
        self.max_keys = max_keys;
        self
    }

    /// The clock of `memory://`, for tests: a [`ManualClock`](crate::testing::ManualClock).
    pub fn clock(mut self, clock: impl Clock + 'static) -> Self {
        self.clock = Some(Arc::new(clock));
        self
    }

    /// Makes the client. Connects to nothing, waits for nothing, and needs no runtime.
    /// # Errors
    /// [`ErrorKind::InvalidOptions`] for a URL or an option that cannot be.
    pub fn build(self) -> Result<Client, Error> {
        check_prefix(&self.prefix)?;
        let partitions = self.partitions.map(Partitions::new).transpose()?;
        check_timeout("timeout", self.timeout)?;
        check_timeout("connect_timeout", self.connect_timeout)?;
        self.fallback_share.map_or(Ok(()), check_share)?;
        if self.max_keys < MAX_LIMITS {
            return Err(invalid(format!("max_keys must be at least {MAX_LIMITS}, the most limits of one key")));
        }
        let local_clock: Arc<dyn Clock> = Arc::new(MonotonicClock::new());
        let (store, clock) = self.store(partitions, &local_clock)?;
        let options = Options {
            timeout: self.timeout,
            on_failure: self.on_failure,
            share: self.fallback_share.map_or(Share::WHOLE, Share::of),
        };
        let fallback = Fallback::new(self.max_keys, local_clock);
        Ok(Client { guard: Arc::new(Guard::new(store, fallback, clock)), options })
    }

    fn store(
        &self,
        partitions: Option<Partitions>,
        local_clock: &Arc<dyn Clock>,
    ) -> Result<(AnyStore, Arc<dyn Clock>), Error> {
        if let Some(rest) = self.url.strip_prefix("memory:") {
            if !matches!(rest, "//" | "///") {
                return Err(invalid("memory:// takes nothing behind it"));
            }
            let clock = self.clock.clone().unwrap_or_else(|| Arc::clone(local_clock));
            return Ok((AnyStore::Memory(MemoryStore::new(self.max_keys, Arc::clone(&clock))), clock));
        }
        if self.clock.is_some() {
            return Err(invalid("a clock can be set for memory:// alone; in Redis the server's time counts"));
        }
        let access = Access::new(self.connect_timeout);
        if self.url.starts_with(CLUSTER_SCHEME) {
            let seeds = Address::parse_cluster(&self.url)?;
            let store = ClusterStore::new(seeds, self.prefix.clone(), partitions, access);
            return Ok((AnyStore::Cluster(store), Arc::clone(local_clock)));
        }
        let address = Address::parse(&self.url)?;
        let store = RedisStore::new(address, self.prefix.clone(), partitions, access);
        Ok((AnyStore::Redis(store), Arc::clone(local_clock)))
    }
}

/// Without the URL, which may hold a password.
impl fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientBuilder")
            .field("timeout", &self.timeout)
            .field("connect_timeout", &self.connect_timeout)
            .field("on_failure", &self.on_failure)
            .field("fallback_share", &self.fallback_share)
            .field("prefix", &self.prefix)
            .field("partitions", &self.partitions)
            .field("max_keys", &self.max_keys)
            .finish_non_exhaustive()
    }
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOptions, message)
}
