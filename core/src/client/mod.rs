//! A client: one store, its deadline and its failure policy.

mod builder;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use self::builder::ClientBuilder;
use crate::error::Error;
use crate::guard::{Guard, Options, check_timeout};
use crate::limit::Limits;
use crate::limiter::Limiter;
use crate::stats::Stats;
use crate::store::Pong;

/// One set of connections to one store, with its deadline and failure policy. Cheap to clone; clones are the same client.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), grifo::Error> {
/// let client = grifo::Client::open("memory://")?;
/// let api = client.limiter("api", "100/min burst 20")?;
/// assert!(api.check("user:42").await?.allowed);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Client {
    guard: Arc<Guard>,
    options: Options,
}

impl Client {
    /// A client with the default options. See [`builder`](Self::builder) for others.
    /// # Errors
    /// [`ErrorKind::InvalidOptions`](crate::ErrorKind::InvalidOptions) for a URL that cannot be.
    pub fn open(url: impl Into<String>) -> Result<Self, Error> {
        Self::builder(url).build()
    }

    /// Begins a client of the store at a URL: `memory://`, `redis://[user:pass@]host[:port][/db]`,
    /// `redis+unix:///path[?user=…&pass=…&db=…]`, `redis+cluster://[user:pass@]host[:port][,host[:port]…]`,
    /// `redis+sentinel://[user:pass@]host[:port][,host[:port]…]/master-name[/db]`, where the hosts are the sentinels; with TLS
    /// `rediss://…` and `rediss+cluster://…`.
    pub fn builder(url: impl Into<String>) -> ClientBuilder {
        ClientBuilder::new(url.into())
    }

    /// A limiter: a name and 1 to 4 Limits, given as text, as one [`Limit`](crate::Limit), as an array, slice or vector of
    /// them, or as [`Limits`].
    /// Two limiters of one name share state.
    /// # Errors
    /// [`ErrorKind::InvalidLimit`](crate::ErrorKind::InvalidLimit) for Limits that cannot be, [`ErrorKind::InvalidOptions`](crate::ErrorKind::InvalidOptions) for a name that is empty or longer
    /// than 255 bytes, [`ErrorKind::Closed`](crate::ErrorKind::Closed) when the client was closed.
    pub fn limiter<L>(&self, name: impl Into<String>, limits: L) -> Result<Limiter, Error>
    where
        L: TryInto<Limits>,
        Error: From<L::Error>,
    {
        self.guard.check_open()?;
        Limiter::new(Arc::clone(&self.guard), name.into(), limits.try_into()?, self.options)
    }

    /// Makes ready for calls: connects to every master and loads the scripts there, the one time that this is done unasked.
    /// Optional: without it the first call connects. On loopback it takes one to three milliseconds, and saves the first call
    /// half a millisecond to one.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), grifo::Error> {
    /// let client = grifo::Client::open("memory://")?;
    /// client.connect(std::time::Duration::from_secs(1)).await?;
    /// # Ok(()) }
    /// ```
    /// # Errors
    /// Why the store could not be made ready within `timeout`, which is tried again until then;
    /// [`ErrorKind::InvalidOptions`](crate::ErrorKind::InvalidOptions) for a timeout of zero or more than an hour.
    pub async fn connect(&self, timeout: Duration) -> Result<(), Error> {
        self.guard.check_open()?;
        check_timeout("timeout", timeout)?;
        self.guard.connect(timeout).await
    }

    /// Asks the store for its health, within the client's deadline or a second, whichever is longer.
    /// # Errors
    /// Why the store did not answer.
    pub async fn ping(&self) -> Result<Pong, Error> {
        self.guard.check_open()?;
        self.guard.ping(self.options.timeout.max(Duration::from_secs(1))).await
    }

    /// What the client has counted so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.guard.stats()
    }

    /// Closes the connections, for all clones. Every call afterwards is the error [`ErrorKind::Closed`](crate::ErrorKind::Closed).
    pub fn close(&self) {
        self.guard.close();
    }
}

/// Without the keys of callers that are in memory.
impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("timeout", &self.options.timeout)
            .field("on_failure", &self.options.on_failure)
            .finish_non_exhaustive()
    }
}
