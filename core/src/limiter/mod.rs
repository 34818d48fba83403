//! A limiter: what users ask.

mod acquire;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::decision::Decision;
use crate::error::Error;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::guard::{AtOnce, FailurePolicy, Guard, Options, Share, check_share, check_timeout};
use crate::key::{check_key, check_name};
use crate::limit::Limits;
use crate::store::{Entry, Operation};

/// A named set of 1 to 4 Limits on a [`Client`](crate::Client), decided together: all are charged or none is.
/// Cheap to make and to clone; limiters of one name share state.
///
/// Keys are any 1 to 65,536 bytes. Every call fails with [`ErrorKind::InvalidKey`] for others, and with
/// [`ErrorKind::Closed`] once the client was closed. When the store cannot decide in time, the
/// [`FailurePolicy`] does, which is an error under [`FailurePolicy::Raise`] alone.
#[derive(Clone)]
pub struct Limiter {
    guard: Arc<Guard>,
    name: Arc<str>,
    limits: Arc<Limits>,
    options: Options,
}

impl Limiter {
    pub(crate) fn new(guard: Arc<Guard>, name: String, limits: Limits, options: Options) -> Result<Self, Error> {
        check_name(&name)?;
        Ok(Self { guard, name: name.into(), limits: limits.into(), options })
    }

    /// The same limiter with a failure policy of its own.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), grifo::Error> {
    /// # let client = grifo::Client::open("memory://")?;
    /// use grifo::FailurePolicy;
    ///
    /// let login = client.limiter("login", "5/min")?.on_failure(FailurePolicy::Closed);
    /// let reads = client.limiter("reads", "100/s")?.on_failure(FailurePolicy::Open);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub const fn on_failure(mut self, policy: FailurePolicy) -> Self {
        self.options.on_failure = policy;
        self
    }

    /// The same limiter with a deadline of its own.
    /// # Errors
    /// [`ErrorKind::InvalidOptions`] for zero or more than an hour.
    pub fn timeout(mut self, timeout: Duration) -> Result<Self, Error> {
        check_timeout("timeout", timeout)?;
        self.options.timeout = timeout;
        Ok(self)
    }

    /// The same limiter with a share of its own under [`FailurePolicy::Local`].
    /// # Errors
    /// [`ErrorKind::InvalidOptions`] for what is not more than 0 and at most 1.
    pub fn fallback_share(mut self, share: f64) -> Result<Self, Error> {
        check_share(share)?;
        self.options.share = Share::of(share);
        Ok(self)
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The Limits.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Takes one token if there is one.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), grifo::Error> {
    /// # let client = grifo::Client::open("memory://")?;
    /// let api = client.limiter("api", "100/min")?;
    /// let decision = api.check("user:42").await?;
    /// assert!(decision.allowed);
    /// assert_eq!(decision.remaining, 99);
    /// # Ok(()) }
    /// ```
    /// # Errors
    /// See [`Limiter`].
    pub async fn check(&self, key: impl AsRef<[u8]>) -> Result<Decision, Error> {
        let key = key.as_ref();
        self.decide(Operation::Check, key, 1).await
    }

    /// Takes `cost` tokens if there are so many; else none. A cost of 0 takes nothing and is allowed.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), grifo::Error> {
    /// # let client = grifo::Client::open("memory://")?;
    /// let bytes = client.limiter("upload", "1000000/min")?;
    /// assert!(bytes.check_n("user:42", 600_000).await?.allowed);
    /// let denied = bytes.check_n("user:42", 600_000).await?;
    /// assert!(!denied.allowed && denied.retry_after.is_some());
    /// # Ok(()) }
    /// ```
    /// # Errors
    /// See [`Limiter`].
    pub async fn check_n(&self, key: impl AsRef<[u8]>, cost: u64) -> Result<Decision, Error> {
        let key = key.as_ref();
        self.decide(Operation::Check, key, cost).await
    }

    /// Checks many keys in one call, each on its own: one that is denied takes nothing from the others.
    /// The decisions come in the order of the keys; a key that occurs twice is charged twice.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), grifo::Error> {
    /// # let client = grifo::Client::open("memory://")?;
    /// let tenants = client.limiter("tenants", "2/s")?;
    /// let decisions = tenants.check_many([("a", 1), ("b", 2), ("a", 2)]).await?;
    /// assert_eq!(decisions.iter().map(|d| d.allowed).collect::<Vec<_>>(), [true, true, false]);
    /// # Ok(()) }
    /// ```
    /// # Errors
    /// See [`Limiter`]; nothing is charged when a key is invalid. Many keys go to the store in several calls: when one of these
    /// fails, the policy answers for its keys alone, and under [`FailurePolicy::Raise`] others may have been charged.
    pub async fn check_many<K: AsRef<[u8]>>(
        &self,
        calls: impl IntoIterator<Item = (K, u64)>,
    ) -> Result<Vec<Decision>, Error> {
        let calls: Vec<(K, u64)> = calls.into_iter().collect();
        let entries: Vec<Entry<'_>> = calls.iter().map(|(key, cost)| self.entry(key.as_ref(), *cost)).collect();
        self.decide_all(Operation::Check, &entries, None).await
    }

    /// What a call of cost 1 would be answered, without taking or writing anything.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), grifo::Error> {
    /// # let client = grifo::Client::open("memory://")?;
    /// let api = client.limiter("api", "100/min")?;
    /// assert_eq!(api.peek("user:42").await?.remaining, 100);
    /// # Ok(()) }
    /// ```
    /// # Errors
    /// See [`Limiter`].
    pub async fn peek(&self, key: impl AsRef<[u8]>) -> Result<Decision, Error> {
        self.decide(Operation::Peek, key.as_ref(), 1).await
    }

    /// Waits until `cost` tokens are taken, for `max_wait` at most; callers of one key in this process come in order of arrival.
    ///
    /// Denied at once when the wait cannot fit in `max_wait` or the cost can never pass, and when the time is up.
    /// A caller who goes away (who drops the future) takes nothing: what was taken meanwhile is given back.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), grifo::Error> {
    /// # let client = grifo::Client::open("memory://")?;
    /// use std::time::Duration;
    ///
    /// let partner = client.limiter("partner", "10/s burst 1")?;
    /// for _ in 0..3 {
    ///     let decision = partner.acquire("partner", 1, Duration::from_secs(2)).await?;
    ///     assert!(decision.allowed);
    /// }
    /// # Ok(()) }
    /// ```
    /// # Errors
    /// See [`Limiter`].
    pub async fn acquire(&self, key: impl AsRef<[u8]>, cost: u64, max_wait: Duration) -> Result<Decision, Error> {
        acquire::acquire(self, key.as_ref(), cost, max_wait).await
    }

    /// Gives back `n` tokens: the newest of the current window, never above full. Answers like [`peek`](Self::peek).
    ///
    /// In a sliding window it costs the server some time for every hit that is given back. While the store is away nothing is
    /// given back there, whatever the policy: then [`Decision::degraded`] is true.
    ///
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), grifo::Error> {
    /// # let client = grifo::Client::open("memory://")?;
    /// let api = client.limiter("api", "fixed-window 5/min")?;
    /// let _ = api.check_n("user:42", 5).await?;
    /// assert_eq!(api.refund("user:42", 2).await?.remaining, 2);
    /// # Ok(()) }
    /// ```
    /// # Errors
    /// See [`Limiter`].
    pub async fn refund(&self, key: impl AsRef<[u8]>, n: u64) -> Result<Decision, Error> {
        self.decide(if n == 0 { Operation::Peek } else { Operation::Refund }, key.as_ref(), n).await
    }

    /// Forgets what the key has used up. Answers like [`peek`](Self::peek).
    ///
    /// While the store is away nothing is reset there, whatever the policy: then [`Decision::degraded`] is true.
    ///
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), grifo::Error> {
    /// # let client = grifo::Client::open("memory://")?;
    /// let login = client.limiter("login", "3/h")?;
    /// let _ = login.check_n("user:42", 3).await?;
    /// assert_eq!(login.reset("user:42").await?.remaining, 3);
    /// # Ok(()) }
    /// ```
    /// # Errors
    /// See [`Limiter`].
    pub async fn reset(&self, key: impl AsRef<[u8]>) -> Result<Decision, Error> {
        self.decide(Operation::Reset, key.as_ref(), 0).await
    }

    pub(crate) fn shares_client_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.guard, &other.guard)
    }

    pub(crate) fn entry<'a>(&'a self, key: &'a [u8], amount: u64) -> Entry<'a> {
        Entry { limiter: &self.name, limits: &self.limits, key, amount }
    }

    #[inline]
    pub(crate) async fn decide(&self, operation: Operation, key: &[u8], amount: u64) -> Result<Decision, Error> {
        let entry = self.entry(key, amount);
        match self.guard.decide_at_once(operation, &entry) {
            AtOnce::Decided(decided) => decided,
            AtOnce::Asks(asked) => self.guard.decide_one(&self.options, operation, &entry, asked).await,
        }
    }

    pub(crate) async fn decide_all(
        &self,
        operation: Operation,
        entries: &[Entry<'_>],
        now: Option<u64>,
    ) -> Result<Vec<Decision>, Error> {
        self.guard.check_open()?;
        entries.iter().try_for_each(|entry| check_key(entry.key))?;
        self.guard.decide(&self.options, operation, entries, now).await
    }
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Limiter({:?}, {})", self.name, self.limits)
    }
}
