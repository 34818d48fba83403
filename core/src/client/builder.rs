//! What a client can be told beside its URL.

use std::error::Error as StdError;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;

use super::Client;
use crate::clock::{Clock, MonotonicClock};
use crate::credentials::{Credentials, CredentialsProvider};
use crate::error::{Error, ErrorKind};
use crate::guard::{
    DenyCache, FailurePolicy, Fallback, Guard, Options, Share, check_deny_cache_max, check_share, check_timeout,
};
use crate::key::{Partitions, check_prefix};
use crate::limit::MAX_LIMITS;
use crate::store::AnyStore;
use crate::store::memory::MemoryStore;
use crate::store::redis::address::{self, Address};
use crate::store::redis::sentinel_address::{SENTINEL_SCHEME, SentinelAddress};
use crate::store::redis::tls::TlsOptions;
use crate::store::redis::{Access, AddressMap, ClusterStore, RedisStore, Sentinels};

const DEFAULT_TIMEOUT: Duration = Duration::from_millis(50);
const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
const DEFAULT_DENY_CACHE_MAX: Duration = Duration::from_secs(1);
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
    deny_cache_max: Duration,
    prefix: String,
    partitions: Option<u16>,
    max_keys: usize,
    clock: Option<Arc<dyn Clock>>,
    tls: TlsOptions,
    sentinel_user: Option<String>,
    sentinel_password: Option<String>,
    credentials_provider: Option<CredentialsProvider>,
    address_map: Option<Vec<(String, String)>>,
}

impl ClientBuilder {
    pub(super) fn new(url: String) -> Self {
        Self {
            url,
            timeout: DEFAULT_TIMEOUT,
            connect_timeout: DEFAULT_CONNECT_TIMEOUT,
            on_failure: FailurePolicy::default(),
            fallback_share: None,
            deny_cache_max: DEFAULT_DENY_CACHE_MAX,
            prefix: DEFAULT_PREFIX.to_owned(),
            partitions: None,
            max_keys: DEFAULT_MAX_KEYS,
            clock: None,
            tls: TlsOptions::default(),
            sentinel_user: None,
            sentinel_password: None,
            credentials_provider: None,
            address_map: None,
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

    /// How long a denial is remembered at most, default 1 s: for as long, and while it cannot pass whatever others do, the call
    /// is denied without asking the store, with [`Source::DenyCache`](crate::Source::DenyCache). What this client gives back
    /// it takes into account at once; what another process gives back it may overlook for this long. Zero turns it off.
    pub const fn deny_cache_max(mut self, longest: Duration) -> Self {
        self.deny_cache_max = longest;
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

    /// The file with the certificates of the authorities that may have signed the server's, in the form of PEM; these are
    /// trusted then in place of those that the system trusts. For a URL with TLS, `rediss://` or `rediss+cluster://`, and for
    /// all servers of the store, like every option of TLS.
    ///
    /// It is read by [`build`](Self::build), which gives [`ErrorKind::InvalidOptions`] if it cannot be, and anew for each
    /// connection; if it cannot be used then, what was read before stays in use, and a warning is logged. Those of the system
    /// are read at the first connection, and again after a failed handshake, at most once a minute; the variables
    /// `SSL_CERT_FILE` and `SSL_CERT_DIR` of the environment stand in for them.
    ///
    /// ```
    /// let builder = grifo::Client::builder("rediss://redis.example.com").tls_ca_file("/no/such/ca.pem");
    /// # #[cfg(feature = "tls")]
    /// assert!(builder.build().unwrap_err().message().contains("/no/such/ca.pem"));
    /// ```
    pub fn tls_ca_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.tls.ca_file = Some(path.into());
        self
    }

    /// The file with the certificate that this client shows to a server that wants one, in the form of PEM; certificates in
    /// between it and the authority follow it. Goes together with [`tls_key`](Self::tls_key); [`build`](Self::build) gives
    /// [`ErrorKind::InvalidOptions`] if one of the files cannot be read or the two do not belong together. Both are read anew
    /// for each connection; as long as they cannot be used together, those read before stay in use, and a warning is logged.
    ///
    /// ```
    /// let builder = grifo::Client::builder("rediss://redis.example.com");
    /// let builder = builder.tls_certificate("/no/such/client.pem").tls_key("/no/such/client.key");
    /// assert_eq!(builder.build().unwrap_err().kind(), grifo::ErrorKind::InvalidOptions);
    /// ```
    pub fn tls_certificate(mut self, path: impl Into<PathBuf>) -> Self {
        self.tls.certificate = Some(path.into());
        self
    }

    /// The file with the private key of [`tls_certificate`](Self::tls_certificate), without a passphrase, in the form of PEM:
    /// PKCS#8, PKCS#1 or SEC1. Read like that one; what it holds appears in no message.
    pub fn tls_key(mut self, path: impl Into<PathBuf>) -> Self {
        self.tls.key = Some(path.into());
        self
    }

    /// The DNS name or IP address that the server's certificate must hold, and that it is asked for. Default: the host of the
    /// URL, and for the nodes of a cluster the host that each announces. [`build`](Self::build) gives
    /// [`ErrorKind::InvalidOptions`] for what is neither.
    ///
    /// ```
    /// // Through a tunnel, the server is not where its certificate says.
    /// let builder = grifo::Client::builder("rediss://localhost:16379").tls_server_name("redis.example.com");
    /// # #[cfg(feature = "tls")]
    /// builder.build()?;
    /// # Ok::<(), grifo::Error>(())
    /// ```
    pub fn tls_server_name(mut self, name: impl Into<String>) -> Self {
        self.tls.server_name = Some(name.into());
        self
    }

    /// **Dangerous.** Takes any server for the right one, whatever its certificate: the connection is encrypted, but whoever
    /// sits in between reads it, the password first of all, and answers what he likes. For tests alone. Default `false`;
    /// `true` is logged as a warning by [`build`](Self::build).
    pub const fn tls_insecure(mut self, insecure: bool) -> Self {
        self.tls.insecure = insecure;
        self
    }

    /// The user to log in as at the sentinels of a `redis+sentinel://` URL. Default: the one that a password alone stands for.
    /// User and password in the URL are those of the master and its replicas.
    pub fn sentinel_user(mut self, user: impl Into<String>) -> Self {
        self.sentinel_user = Some(user.into());
        self
    }

    /// The password of the sentinels, if they want one.
    pub fn sentinel_password(mut self, password: impl Into<String>) -> Self {
        self.sentinel_password = Some(password.into());
        self
    }

    /// What yields user and password, in place of those in the URL: for tokens that expire, as those of cloud providers do.
    ///
    /// It is asked for each new connection, within [`connect_timeout`](Self::connect_timeout), by one call at a time for all
    /// nodes of a cluster. Where it says how long its [`Credentials`] are [valid](Credentials::valid_for), it is asked again
    /// in good time before, and connections that are open log in anew; no decision notices. While it fails, hangs or panics
    /// and no connection can be made, the failure policy answers, with the reason [`ErrorKind::Auth`] or
    /// [`ErrorKind::Timeout`]. What it says of an error is part of grifo's own messages: it should hold no secret. It runs as a
    /// task of the caller's runtime, so it must not block.
    ///
    /// ```
    /// # async fn fetch_token() -> Result<String, std::io::Error> { Ok("token".to_owned()) }
    /// use std::time::Duration;
    ///
    /// let client = grifo::Client::builder("redis://localhost")
    ///     .credentials_provider(|| async {
    ///         let token = fetch_token().await?;
    ///         Ok(grifo::Credentials::new(token).user("app").valid_for(Duration::from_secs(900)))
    ///     })
    ///     .build()?;
    /// # Ok::<(), grifo::Error>(())
    /// ```
    pub fn credentials_provider<P, F>(mut self, provider: P) -> Self
    where
        P: Fn() -> F + Send + Sync + 'static,
        F: Future<Output = Result<Credentials, Box<dyn StdError + Send + Sync>>> + Send + 'static,
    {
        self.credentials_provider = Some(Arc::new(move || provider().boxed()));
        self
    }

    /// Where nodes are that are announced under other addresses, as those of a cluster behind NAT or forwarded ports.
    ///
    /// An entry with ports translates that host and port, one without translates the host alone; the former goes first.
    /// Addresses that are in no entry are used as they are announced, and those in the URL as they are written.
    ///
    /// ```
    /// let client = grifo::Client::builder("redis+cluster://localhost:7001")
    ///     .address_map([("10.0.0.1:6379", "localhost:7001"), ("10.0.0.2:6379", "localhost:7002")])
    ///     .build()?;
    /// # Ok::<(), grifo::Error>(())
    /// ```
    pub fn address_map<A, B>(mut self, entries: impl IntoIterator<Item = (A, B)>) -> Self
    where
        A: Into<String>,
        B: Into<String>,
    {
        self.address_map = Some(entries.into_iter().map(|(from, to)| (from.into(), to.into())).collect());
        self
    }

    /// Makes the client. Connects to nothing, waits for nothing, and needs no runtime. Reads the files that options of TLS
    /// name.
    /// # Errors
    /// [`ErrorKind::InvalidOptions`] for a URL or an option that cannot be, and for a file that cannot be read.
    pub fn build(self) -> Result<Client, Error> {
        check_prefix(&self.prefix)?;
        let partitions = self.partitions.map(Partitions::new).transpose()?;
        check_timeout("timeout", self.timeout)?;
        check_timeout("connect_timeout", self.connect_timeout)?;
        self.fallback_share.map_or(Ok(()), check_share)?;
        check_deny_cache_max(self.deny_cache_max)?;
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
        // The embedded store answers as fast, and knows more.
        let longest = if store.is_immediate() { Duration::ZERO } else { self.deny_cache_max };
        let guard = Guard::new(store, fallback, DenyCache::new(longest), clock);
        Ok(Client { guard: Arc::new(guard), options })
    }

    fn store(
        &self,
        partitions: Option<Partitions>,
        local_clock: &Arc<dyn Clock>,
    ) -> Result<(AnyStore, Arc<dyn Clock>), Error> {
        self.check_sentinel_options()?;
        let is_discovered = address::is_cluster(&self.url) || self.url.starts_with(SENTINEL_SCHEME);
        if self.address_map.is_some() && !is_discovered {
            return Err(invalid(
                "an address map is for clusters and sentinels alone; other URLs say themselves where to connect",
            ));
        }
        if let Some(rest) = self.url.strip_prefix("memory:") {
            if !matches!(rest, "//" | "///") {
                return Err(invalid("memory:// takes nothing behind it"));
            }
            self.tls.resolve(false)?;
            if self.credentials_provider.is_some() {
                return Err(invalid("memory:// has no users, so it takes no credentials provider"));
            }
            let clock = self.clock.clone().unwrap_or_else(|| Arc::clone(local_clock));
            return Ok((AnyStore::Memory(MemoryStore::new(self.max_keys, Arc::clone(&clock))), clock));
        }
        if self.clock.is_some() {
            return Err(invalid("a clock can be set for memory:// alone; in Redis the server's time counts"));
        }
        if address::is_cluster(&self.url) {
            let seeds = Address::parse_cluster(&self.url)?;
            let access = self.access(&seeds[0])?;
            let store = ClusterStore::new(seeds, self.prefix.clone(), partitions, access);
            return Ok((AnyStore::Cluster(store), Arc::clone(local_clock)));
        }
        if self.url.starts_with(SENTINEL_SCHEME) {
            let address = SentinelAddress::parse(&self.url)?;
            let access = self.access(address.server())?;
            let store = ClusterStore::watched(self.sentinels(address), self.prefix.clone(), partitions, access);
            return Ok((AnyStore::Cluster(store), Arc::clone(local_clock)));
        }
        let address = Address::parse(&self.url)?;
        let access = self.access(&address)?;
        let store = RedisStore::new(address, self.prefix.clone(), partitions, access);
        Ok((AnyStore::Redis(store), Arc::clone(local_clock)))
    }

    fn check_sentinel_options(&self) -> Result<(), Error> {
        match (&self.sentinel_user, &self.sentinel_password) {
            (None, None) => Ok(()),
            _ if !self.url.starts_with(SENTINEL_SCHEME) => {
                Err(invalid("sentinel_user and sentinel_password can be set for redis+sentinel:// alone"))
            }
            (Some(_), None) => Err(invalid("sentinel_user is set, but no sentinel_password")),
            (_, Some(_)) => Ok(()),
        }
    }

    /// The sentinels of an address, who have credentials of their own.
    fn sentinels(&self, address: SentinelAddress) -> Sentinels {
        let address =
            address.with_sentinel_credentials(self.sentinel_user.as_deref(), self.sentinel_password.as_deref());
        Sentinels::new(address, Access::new(self.connect_timeout))
    }

    /// How servers are reached whose URL names this address, among others with the same credentials.
    fn access(&self, address: &Address) -> Result<Access, Error> {
        let address_map = AddressMap::new(self.address_map.as_deref().unwrap_or_default())?;
        let tls = self.tls.resolve(address.has_tls())?;
        let access = Access::new(self.connect_timeout).with_tls(tls).with_address_map(address_map);
        match &self.credentials_provider {
            Some(_) if address.has_credentials() => {
                Err(invalid("credentials come from the URL or from a provider, not from both"))
            }
            Some(provider) => Ok(access.with_provider(Arc::clone(provider))),
            None => Ok(access),
        }
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
            .field("deny_cache_max", &self.deny_cache_max)
            .field("prefix", &self.prefix)
            .field("partitions", &self.partitions)
            .field("max_keys", &self.max_keys)
            .field("tls", &self.tls)
            .field("address_map", &self.address_map.as_ref().map(Vec::len))
            .field("credentials_provider", &self.credentials_provider.is_some())
            .finish_non_exhaustive()
    }
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOptions, message)
}
