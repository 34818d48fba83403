//! A live connection to a server, shared by all callers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, Pipeline, Value};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::AbortHandle;

use super::access::Access;
use super::address::{Address, Endpoint};
use super::reply::Failure;
use super::script;
use super::session::{Renewal, Session, with_credentials};
use super::tls;
use crate::error::{Error, ErrorKind};

/// A connection that lasted less counts as a failed attempt, lest a server that cuts every connection be stormed.
const SHORT_LIFE: Duration = Duration::from_secs(1);
/// A connection is given up when so many requests in a row, over such a time, were left without an answer.
const UNANSWERED_REQUESTS: u32 = 2;
const UNANSWERED_TIME: Duration = Duration::from_millis(200);

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
    pub(super) async fn open(
        address: &Address,
        access: &Access,
        session: Option<&Arc<Session>>,
    ) -> Result<Self, Error> {
        let refused =
            |error: std::io::Error| Error::new(ErrorKind::Connection, format!("cannot connect to {address}: {error}"));
        match &address.endpoint {
            Endpoint::Tcp { host, port } => {
                let stream = TcpStream::connect((host.as_str(), *port)).await.map_err(refused)?;
                stream.set_nodelay(true).map_err(refused)?;
                match access.tls_of(address)? {
                    None => Self::over(stream, address, session).await.map_err(tls::hint::of_a_cut),
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

    pub(super) fn is_alive(&self) -> bool {
        self.alive.load(Ordering::Acquire)
    }

    /// Whether the server has ended it soon after it was made.
    pub(super) fn was_cut_soon(&self) -> bool {
        self.was_cut.load(Ordering::Acquire) && self.opened.elapsed() < SHORT_LIFE
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
        self.exchange(async |connection| connection.send_packed_command(command).await).await.and_then(own_failure)
    }

    /// The same behind an ASKING, with nothing in between, for a slot that is just being moved to this server.
    pub(super) async fn ask_with_asking(&self, command: &Cmd) -> Result<Value, Failure> {
        let mut pipeline = redis::pipe();
        pipeline.cmd("ASKING").add_command(command.clone());
        let mut replies =
            self.exchange(async |connection| connection.send_packed_commands(&pipeline, 0, 2).await).await?;
        own_failure(replies.pop().unwrap_or(Value::Nil))
    }

    /// Sends commands in one write. Each has its own reply or failure, unless the connection fails.
    pub(super) async fn ask_all(&self, commands: &Pipeline) -> Result<Vec<Result<Value, Failure>>, Failure> {
        let count = commands.len();
        let replies =
            self.exchange(async |connection| connection.send_packed_commands(commands, 0, count).await).await?;
        Ok(replies.into_iter().map(own_failure).collect())
    }

    async fn exchange<T>(
        &self,
        request: impl AsyncFnOnce(&mut MultiplexedConnection) -> redis::RedisResult<T>,
    ) -> Result<T, Failure> {
        if !self.is_alive() {
            return Err(Failure::Unsent(Error::new(ErrorKind::Connection, "the connection was lost")));
        }
        let waiting = Waiting(self);
        let outcome = request(&mut self.connection.clone()).await;
        waiting.answered();
        outcome.map_err(|error| {
            if error.is_unrecoverable_error() {
                self.was_cut.store(true, Ordering::Release);
                self.alive.store(false, Ordering::Release);
            }
            Failure::of(&error)
        })
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

/// The failure that a reply is.
fn own_failure(reply: Value) -> Result<Value, Failure> {
    match reply {
        Value::ServerError(error) => Err(Failure::of(&error.into())),
        reply => Ok(reply),
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
