//! A client: one store, its deadline and its failure policy.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::clock::Clock;
use crate::error::{Error, ErrorKind};
use crate::guard::{Fallback, Guard, Options, Share};
use crate::limit::Limits;
use crate::limiter::Limiter;
use crate::limiter::turns::Turns;
use crate::options::ClientBuilder;
use crate::stats::Stats;
use crate::store::memory::MemoryStore;
use crate::store::{AnyStore, Pong, Store};

/// One set of connections to one store, with its deadline and failure policy. Cheap to clone; clones are the same client.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), grifo::Error> {
/// let client = grifo::Client::open("memory://")?;
/// let api = client.limiter("api", "100/min burst 20")?;
/// assert!(api.check("user:42").await?.allowed);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) guard: Guard,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) turns: Turns,
    options: Options,
    closed: AtomicBool,
}

impl Inner {
    pub(crate) fn check_open(&self) -> Result<(), Error> {
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::new(ErrorKind::Closed, "the client was closed; make another"));
        }
        Ok(())
    }
}

impl Client {
    /// A client with the default options. See [`builder`](Self::builder) for others.
    /// # Errors
    /// [`ErrorKind::InvalidOptions`] for a URL that cannot be.
    pub fn open(url: impl Into<String>) -> Result<Self, Error> {
        Self::builder(url).build()
    }

    /// Begins a client of the store at a URL: `memory://`, `redis://[user:pass@]host[:port][/db]` or
    /// `redis+unix:///path[?user=…&pass=…&db=…]`.
    pub fn builder(url: impl Into<String>) -> ClientBuilder {
        ClientBuilder::new(url.into())
    }

    pub(crate) fn new(builder: &ClientBuilder, store: AnyStore, fallback: MemoryStore, clock: Arc<dyn Clock>) -> Self {
        let options = Options {
            timeout: builder.timeout,
            on_failure: builder.on_failure,
            share: builder.fallback_share.map_or(Share::WHOLE, Share::of),
        };
        let guard = Guard::new(store, Fallback::new(fallback, Arc::clone(&clock)));
        Self {
            inner: Arc::new(Inner { guard, clock, turns: Turns::default(), options, closed: AtomicBool::new(false) }),
        }
    }

    /// A limiter: a name and 1 to 4 Limits, given as text, as [`Limit`](crate::Limit)s or as [`Limits`].
    /// Two limiters of one name share state.
    /// # Errors
    /// [`ErrorKind::InvalidLimit`] for Limits that cannot be, [`ErrorKind::InvalidOptions`] for a name that is empty or longer
    /// than 255 bytes, [`ErrorKind::Closed`] when the client was closed.
    pub fn limiter<L>(&self, name: impl Into<String>, limits: L) -> Result<Limiter, Error>
    where
        L: TryInto<Limits>,
        Error: From<L::Error>,
    {
        self.inner.check_open()?;
        Limiter::new(Arc::clone(&self.inner), name.into(), limits.try_into()?, self.inner.options)
    }

    /// Makes ready for calls: connects and loads the scripts. Optional: without it the first call connects.
    /// # Errors
    /// Why the store could not be made ready within `timeout`.
    pub async fn connect(&self, timeout: Duration) -> Result<(), Error> {
        self.inner.check_open()?;
        self.inner.guard.connect(timeout).await
    }

    /// Asks the store for its health, within the client's deadline or a second, whichever is longer.
    /// # Errors
    /// Why the store did not answer.
    pub async fn ping(&self) -> Result<Pong, Error> {
        self.inner.check_open()?;
        self.inner.guard.ping(self.inner.options.timeout.max(Duration::from_secs(1))).await
    }

    /// What the client has counted so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let reloads = match &self.inner.guard.store {
            AnyStore::Redis(store) => store.reloads(),
            AnyStore::Memory(_) => 0,
        };
        self.inner.guard.counters.read(reloads)
    }

    /// Closes the connections, for all clones. Every call afterwards is the error [`ErrorKind::Closed`].
    pub fn close(&self) {
        self.inner.closed.store(true, Ordering::Release);
        self.inner.guard.store.close();
    }
}
