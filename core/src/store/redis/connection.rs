//! The connection to a server: made when first asked for, shared by all callers, made anew when lost.
//!
//! Connecting goes on in the background, with a time of its own; a caller whose deadline ends meanwhile leaves it going on.
//! There is never more than one attempt at once, and attempts that fail are spaced with backoff and jitter.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::access::Access;
use super::address::Address;
use super::backoff::backoff;
use super::link::Link;
use super::session::Session;
use super::tls;
use crate::error::{Error, ErrorKind};

/// An attempt that is not over so long after its time is never over.
const ATTEMPT_MARGIN: Duration = Duration::from_millis(200);

type Attempt = watch::Receiver<Option<Result<Arc<Link>, Error>>>;

/// Holds the connection, or what has become of it.
#[derive(Debug)]
pub(super) struct Connector {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    address: Address,
    access: Arc<Access>,
    session: Option<Arc<Session>>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    connection: Connection,
    /// Attempts that failed and connections that were lost at once, since one lasted.
    failures: u32,
}

#[derive(Debug)]
enum Connection {
    None,
    Connecting(Attempt, AbortHandle, Instant),
    Up(Arc<Link>),
    /// The last attempt failed; the next is made no earlier than then.
    Failed(Error, Instant),
    Closed,
}

impl Connector {
    pub(super) fn new(address: Address, access: Arc<Access>) -> Self {
        let state = Mutex::new(State { connection: Connection::None, failures: 0 });
        let session = access.session();
        Self { shared: Arc::new(Shared { address, access, session, state }) }
    }

    /// The live connection; waits for it to be made where there is none.
    pub(super) async fn link(&self) -> Result<Arc<Link>, Error> {
        // Twice, since an attempt ends without a word when the runtime that it ran on is gone.
        for _ in 0..2 {
            let mut attempt = match self.live_or_attempt()? {
                Ok(link) => return Ok(link),
                Err(attempt) => attempt,
            };
            if let Ok(outcome) = attempt.wait_for(Option::is_some).await {
                return outcome.clone().unwrap_or_else(|| Err(gone()));
            }
            self.shared.forget_attempt(&attempt);
        }
        Err(gone())
    }

    /// The connection, or the attempt to make it, begun now if need be.
    fn live_or_attempt(&self) -> Result<Result<Arc<Link>, Attempt>, Error> {
        let mut state = self.shared.lock();
        state.bury_dead_link();
        match &state.connection {
            Connection::Up(link) if link.is_alive() => return Ok(Ok(Arc::clone(link))),
            Connection::Connecting(attempt, task, began) => {
                // A runtime that nobody drives keeps its tasks, and their timers, for ever.
                if began.elapsed() < self.shared.access.connect_timeout + ATTEMPT_MARGIN {
                    return Ok(Err(attempt.clone()));
                }
                task.abort();
            }
            Connection::Failed(error, next) if Instant::now() < *next => return Err(error.clone()),
            Connection::Closed => return Err(Error::new(ErrorKind::Closed, "the client was closed")),
            Connection::None | Connection::Up(_) | Connection::Failed(..) => {}
        }
        let (sender, attempt) = watch::channel(None);
        let task = tokio::spawn(connect(Arc::downgrade(&self.shared), sender));
        state.connection = Connection::Connecting(attempt.clone(), task.abort_handle(), Instant::now());
        Ok(Err(attempt))
    }

    pub(super) fn is_connected(&self) -> bool {
        matches!(&self.shared.lock().connection, Connection::Up(link) if link.is_alive())
    }

    pub(super) fn next_attempt(&self) -> Option<Instant> {
        match &self.shared.lock().connection {
            Connection::Failed(_, next) => Some(*next),
            _ => None,
        }
    }

    pub(super) fn close(&self) {
        let mut state = self.shared.lock();
        if let Connection::Connecting(_, task, _) = &state.connection {
            task.abort();
        }
        state.connection = Connection::Closed;
    }
}

impl Drop for Connector {
    fn drop(&mut self) {
        self.close();
    }
}

impl State {
    /// Lets go of a connection that was lost. The first that was lost at once is made anew without a pause.
    fn bury_dead_link(&mut self) {
        let Connection::Up(link) = &self.connection else { return };
        if link.is_alive() {
            return;
        }
        self.failures = if link.was_cut_soon() { self.failures.saturating_add(1) } else { 0 };
        self.connection = if self.failures > 1 {
            let error = Error::new(ErrorKind::Connection, "the server closes every connection soon after it is made");
            Connection::Failed(error, Instant::now() + backoff(self.failures - 2))
        } else {
            Connection::None
        };
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn forget_attempt(&self, attempt: &Attempt) {
        let mut state = self.lock();
        if matches!(&state.connection, Connection::Connecting(current, ..) if current.same_channel(attempt)) {
            state.connection = Connection::None;
        }
    }

    fn settle(&self, outcome: &Result<Arc<Link>, Error>) {
        let mut state = self.lock();
        if matches!(state.connection, Connection::Closed) {
            return;
        }
        state.connection = match outcome {
            Ok(link) => Connection::Up(Arc::clone(link)),
            Err(error) => {
                let pause = backoff(state.failures);
                state.failures = state.failures.saturating_add(1);
                Connection::Failed(error.clone(), Instant::now() + pause)
            }
        };
    }
}

fn gone() -> Error {
    Error::new(ErrorKind::Connection, "the attempt to connect was ended together with the runtime that it ran on")
}

/// Makes one attempt, and tells all who wait for it. Holds the client only while it lasts.
async fn connect(shared: Weak<Shared>, sender: watch::Sender<Option<Result<Arc<Link>, Error>>>) {
    let needed = |shared: Arc<Shared>| (shared.address.clone(), Arc::clone(&shared.access), shared.session.clone());
    let Some((address, access, session)) = shared.upgrade().map(needed) else { return };
    let timeout = access.connect_timeout;
    let outcome = match tokio::time::timeout(timeout, Link::open(&address, &access, session.as_ref())).await {
        Ok(outcome) => outcome.map(Arc::new),
        Err(_) => Err(Error::new(
            ErrorKind::Timeout,
            format!("connecting to {address} took longer than {timeout:?}{}", tls::hint::of_silence(&address)),
        )),
    };
    if let Some(shared) = shared.upgrade() {
        shared.settle(&outcome);
    }
    sender.send_replace(Some(outcome));
}
