//! The connection to a server: made when first asked for, shared by all callers, made anew when lost.
//!
//! Connecting goes on in the background, with a time of its own; a caller whose deadline ends meanwhile leaves it going on.
//! There is never more than one attempt at once, and attempts that fail are spaced with backoff and jitter.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, Value};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::access::Access;
use super::address::{Address, Endpoint};
use super::reply::Failure;
use super::script;
use super::session::{Renewal, Session, with_credentials};
use crate::error::{Error, ErrorKind};

/// An attempt that is not over so long after its time is never over.
const ATTEMPT_MARGIN: Duration = Duration::from_millis(200);
const FIRST_BACKOFF: Duration = Duration::from_millis(50);
const LONGEST_BACKOFF: Duration = Duration::from_secs(1);
/// A connection that lasted less counts as a failed attempt, lest a server that cuts every connection be stormed.
const SHORT_LIFE: Duration = Duration::from_secs(1);
/// A connection is given up when so many requests in a row, over such a time, were left without an answer.
const UNANSWERED_REQUESTS: u32 = 5;
const UNANSWERED_TIME: Duration = Duration::from_millis(200);

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
        let was_cut = link.was_cut.load(Ordering::Acquire) && link.opened.elapsed() < SHORT_LIFE;
        self.failures = if was_cut { self.failures.saturating_add(1) } else { 0 };
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

/// Doubles with each failure; the jitter keeps clients apart that lost the same server.
pub(super) fn backoff(failures: u32) -> Duration {
    let longest = FIRST_BACKOFF.saturating_mul(1 << failures.min(10)).min(LONGEST_BACKOFF);
    longest.mul_f64(0.5 + fastrand::f64() / 2.0)
}

/// Makes one attempt, and tells all who wait for it. Holds the client only while it lasts.
async fn connect(shared: Weak<Shared>, sender: watch::Sender<Option<Result<Arc<Link>, Error>>>) {
    let needed = |shared: Arc<Shared>| (shared.address.clone(), Arc::clone(&shared.access), shared.session.clone());
    let Some((address, access, session)) = shared.upgrade().map(needed) else { return };
    let timeout = access.connect_timeout;
    let outcome = match tokio::time::timeout(timeout, Link::open(&address, &access, session.as_ref())).await {
        Ok(outcome) => outcome.map(Arc::new),
        Err(_) => Err(too_late(&address, timeout)),
    };
    if let Some(shared) = shared.upgrade() {
        shared.settle(&outcome);
    }
    sender.send_replace(Some(outcome));
}

fn too_late(address: &Address, timeout: Duration) -> Error {
    let hint = if address.has_tls() {
        "; a server without TLS leaves the handshake unanswered: is this its port for TLS?"
    } else {
        ""
    };
    Error::new(ErrorKind::Timeout, format!("connecting to {address} took longer than {timeout:?}{hint}"))
}

/// Whoever meets a server of TLS without it is cut off, or answered in no protocol that he knows.
fn perhaps_for_want_of_tls(error: Error) -> Error {
    match error.kind() {
        kind @ (ErrorKind::Connection | ErrorKind::Protocol) => {
            Error::new(kind, format!("{}; if it speaks TLS, write the URL as rediss://", error.message()))
        }
        _ => error,
    }
}

/// A live connection. Its task ends with it.
#[derive(Debug)]
pub(super) struct Link {
    connection: MultiplexedConnection,
    alive: Arc<AtomicBool>,
    /// Whether it was the server that ended it, and not this side.
    was_cut: Arc<AtomicBool>,
    driver: AbortHandle,
    _renewal: Option<Renewal>,
    opened: Instant,
    read_only_forms: AtomicBool,
    /// How often each script was sent whole.
    scripts_sent: [AtomicU32; script::COUNT],
    /// Requests in a row that were given up without an answer, and when the first was, in milliseconds since `opened`.
    unanswered: AtomicU32,
    unanswered_since: AtomicU64,
}

impl Link {
    async fn open(address: &Address, access: &Access, session: Option<&Arc<Session>>) -> Result<Self, Error> {
        let refused =
            |error: std::io::Error| Error::new(ErrorKind::Connection, format!("cannot connect to {address}: {error}"));
        match &address.endpoint {
            Endpoint::Tcp { host, port } => {
                let stream = TcpStream::connect((host.as_str(), *port)).await.map_err(refused)?;
                stream.set_nodelay(true).map_err(refused)?;
                match access.tls_of(address)? {
                    None => Self::over(stream, address, session).await.map_err(perhaps_for_want_of_tls),
                    Some(tls) => {
                        let (stream, alarm) = tls.handshake(stream, host, address).await?;
                        Self::over(stream, address, session).await.map_err(|error| alarm.explain(error))
                    }
                }
            }
            #[cfg(unix)]
            Endpoint::Unix(path) => {
                Self::over(tokio::net::UnixStream::connect(path).await.map_err(refused)?, address, session).await
            }
        }
    }

    async fn over(
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        address: &Address,
        session: Option<&Arc<Session>>,
    ) -> Result<Self, Error> {
        let config = AsyncConnectionConfig::new().set_response_timeout(None).set_pipeline_buffer_size(1024);
        let issued = match session {
            Some(session) => Some(session.credentials().await?),
            None => None,
        };
        let settings = with_credentials(address.settings(), issued.as_ref());
        let opened = MultiplexedConnection::new_with_config(&settings, stream, config)
            .await
            .map_err(|error| Failure::of(&error).into_error());
        if let (Some(session), Some(issued)) = (session, &issued) {
            session.settle(issued, opened.as_ref().err());
        }
        let (connection, driver) = opened?;
        let alive = Arc::new(AtomicBool::new(true));
        let was_cut = Arc::new(AtomicBool::new(false));
        let (mark, cut) = (MarkDead(Arc::clone(&alive)), Arc::clone(&was_cut));
        let driver = tokio::spawn(async move {
            let mark = mark;
            driver.await;
            // Not reached when the task is aborted, or ends together with its runtime.
            cut.store(mark.0.load(Ordering::Acquire), Ordering::Release);
        });
        let renewal = session.zip(issued).map(|(session, issued)| session.keep(&connection, &alive, issued));
        Ok(Self {
            connection,
            alive,
            was_cut,
            driver: driver.abort_handle(),
            _renewal: renewal,
            opened: Instant::now(),
            read_only_forms: true.into(),
            scripts_sent: Default::default(),
            unanswered: 0.into(),
            unanswered_since: 0.into(),
        })
    }

    fn is_alive(&self) -> bool {
        self.alive.load(Ordering::Acquire)
    }

    /// Gives the connection up: its address may lead elsewhere by now. Whether it is old enough for that to make sense.
    pub(super) fn give_up_if_old(&self) -> bool {
        let is_old = self.opened.elapsed() >= SHORT_LIFE;
        if is_old {
            self.alive.store(false, Ordering::Release);
        }
        is_old
    }

    /// Sends a command once. Fails as [`Failure::Unsent`] only if it surely was not.
    pub(super) async fn ask(&self, command: &Cmd) -> Result<Value, Failure> {
        self.answer_to(async |connection| connection.send_packed_command(command).await).await
    }

    /// The same behind an ASKING, with nothing in between, for a slot that is just being moved to this server.
    pub(super) async fn ask_with_asking(&self, command: &Cmd) -> Result<Value, Failure> {
        let mut pipeline = redis::pipe();
        pipeline.cmd("ASKING").add_command(command.clone());
        self.answer_to(async |connection| {
            let mut values = connection.send_packed_commands(&pipeline, 0, 2).await?;
            Ok(values.pop().unwrap_or(Value::Nil))
        })
        .await
    }

    async fn answer_to(
        &self,
        request: impl AsyncFnOnce(&mut MultiplexedConnection) -> redis::RedisResult<Value>,
    ) -> Result<Value, Failure> {
        if !self.is_alive() {
            return Err(Failure::Unsent(Error::new(ErrorKind::Connection, "the connection was lost")));
        }
        let waiting = Waiting(self);
        let outcome = request(&mut self.connection.clone()).await;
        waiting.answered();
        match outcome.and_then(Value::extract_error) {
            Ok(value) => Ok(value),
            Err(error) => {
                if error.is_unrecoverable_error() {
                    self.was_cut.store(true, Ordering::Release);
                    self.alive.store(false, Ordering::Release);
                }
                Err(Failure::of(&error))
            }
        }
    }

    pub(super) fn scripts_sent(&self, script: usize) -> u32 {
        self.scripts_sent[script].load(Ordering::Acquire)
    }

    /// Whether the caller, who found the script missing in a request sent after `seen` sendings of it, is to send it.
    pub(super) fn may_send_script(&self, script: usize, seen: u32) -> bool {
        self.scripts_sent[script]
            .compare_exchange(seen, seen.wrapping_add(1), Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    pub(super) fn has_read_only_forms(&self) -> bool {
        self.read_only_forms.load(Ordering::Relaxed)
    }

    pub(super) fn forget_read_only_forms(&self) {
        self.read_only_forms.store(false, Ordering::Relaxed);
    }

    /// Counts a request that its caller gave up. Too many in a row, and the connection is half-open: nobody will answer.
    fn left_unanswered(&self) {
        let now = u64::try_from(self.opened.elapsed().as_millis()).unwrap_or(u64::MAX);
        let before = self.unanswered.fetch_add(1, Ordering::Relaxed);
        if before == 0 {
            self.unanswered_since.store(now, Ordering::Relaxed);
        }
        let since = self.unanswered_since.load(Ordering::Relaxed);
        if before + 1 >= UNANSWERED_REQUESTS && Duration::from_millis(now.saturating_sub(since)) >= UNANSWERED_TIME {
            self.alive.store(false, Ordering::Release);
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// A request whose caller may give it up at any time.
struct Waiting<'a>(&'a Link);

impl Waiting<'_> {
    fn answered(self) {
        self.0.unanswered.store(0, Ordering::Relaxed);
        std::mem::forget(self);
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.left_unanswered();
    }
}

/// Marks the connection as lost once its task has ended, however it did.
struct MarkDead(Arc<AtomicBool>);

impl Drop for MarkDead {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}
