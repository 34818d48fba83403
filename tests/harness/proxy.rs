//! A TCP proxy in front of a server that can be made to misbehave at any moment.
//!
//! It runs on a thread and a runtime of its own, so a test may block or pause its clock without touching it.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

use crate::ports::free_port;

/// What the proxy does with connections, old and new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Passes everything on at once.
    Forward,
    /// Passes requests on at once and each reply this much later.
    Delay(Duration),
    /// Passes requests on and throws the replies away; the connection stays open.
    DropReplies,
    /// Passes requests on and, when the server has answered, closes the connection in place of the reply:
    /// the request surely ran. The greeting of a new connection is a request too.
    CloseAfterRequest,
    /// Passes nothing on in either direction, closes nothing and accepts new connections.
    /// What was held back is passed on when the mode changes.
    Stall,
    /// Closes all connections and refuses new ones.
    Refuse,
}

#[derive(Debug)]
enum Order {
    Set(Mode, Sender<()>),
    Cut(Sender<()>),
}

#[derive(Debug, Default)]
struct Counters {
    accepted: AtomicUsize,
    open: AtomicUsize,
}

/// A running proxy; dropping it closes its connections and ends its thread.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    orders: Option<mpsc::UnboundedSender<Order>>,
    counters: Arc<Counters>,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Starts a proxy that forwards to `upstream`, on a free loopback port.
    ///
    /// # Panics
    /// When it cannot listen.
    pub fn start(upstream: SocketAddr) -> Self {
        let port = free_port();
        let (orders, receiver) = mpsc::unbounded_channel();
        let counters = Arc::new(Counters::default());
        let (ready, is_ready) = channel();
        let shared = Arc::clone(&counters);
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.expect("a runtime for the proxy");
            runtime.block_on(serve(port, upstream, receiver, shared, ready));
        });
        let proxy = Self { port, orders: Some(orders), counters, thread: Some(thread) };
        is_ready.recv().expect("the proxy listens");
        proxy
    }

    /// The port it listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The address it listens on.
    pub fn addr(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// `redis://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("redis://{}", self.addr())
    }

    /// Changes what it does; returns once that is in force.
    ///
    /// # Panics
    /// When the proxy is broken.
    pub fn set(&self, mode: Mode) {
        self.order(|done| Order::Set(mode, done));
    }

    /// Closes all connections that are open now, whatever the mode.
    ///
    /// # Panics
    /// When the proxy is broken.
    pub fn cut(&self) {
        self.order(Order::Cut);
    }

    /// How many connections it has accepted so far.
    pub fn accepted(&self) -> usize {
        self.counters.accepted.load(Ordering::SeqCst)
    }

    /// How many connections are open now.
    pub fn open(&self) -> usize {
        self.counters.open.load(Ordering::SeqCst)
    }

    fn order(&self, make: impl FnOnce(Sender<()>) -> Order) {
        let (done, is_done) = channel();
        let orders = self.orders.as_ref().expect("orders until the drop");
        orders.send(make(done)).expect("the proxy runs");
        is_done.recv().expect("the proxy obeys");
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What every connection watches: the mode, and how often all connections were to be closed.
#[derive(Clone, Copy, Debug)]
struct State {
    mode: Mode,
    cuts: usize,
}

async fn serve(
    port: u16,
    upstream: SocketAddr,
    mut orders: mpsc::UnboundedReceiver<Order>,
    counters: Arc<Counters>,
    ready: Sender<()>,
) {
    let mut listener = Some(listen(port).await);
    let (state, _) = watch::channel(State { mode: Mode::Forward, cuts: 0 });
    let _ = ready.send(());
    loop {
        tokio::select! {
            biased;
            order = orders.recv() => match order {
                Some(order) => obey(order, port, &mut listener, &state).await,
                None => return,
            },
            client = accept(listener.as_ref()) => {
                counters.accepted.fetch_add(1, Ordering::SeqCst);
                counters.open.fetch_add(1, Ordering::SeqCst);
                let (counters, state) = (Arc::clone(&counters), state.subscribe());
                tokio::spawn(async move {
                    connection(client, upstream, state).await;
                    counters.open.fetch_sub(1, Ordering::SeqCst);
                });
            }
        }
    }
}

async fn listen(port: u16) -> TcpListener {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await.expect("the proxy's own port")
}

/// A process that another test is just starting may hold the socket for a moment longer, until it runs its program.
async fn until_refused(port: u16) {
    while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.is_ok() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

async fn accept(listener: Option<&TcpListener>) -> TcpStream {
    loop {
        match listener {
            Some(listener) => {
                if let Ok((client, _)) = listener.accept().await {
                    return client;
                }
            }
            None => std::future::pending().await,
        }
    }
}

async fn obey(order: Order, port: u16, listener: &mut Option<TcpListener>, state: &watch::Sender<State>) {
    let done = match order {
        Order::Set(mode, done) => {
            match (mode, listener.is_some()) {
                (Mode::Refuse, _) => {
                    *listener = None;
                    until_refused(port).await;
                }
                (_, false) => *listener = Some(listen(port).await),
                (_, true) => {}
            }
            state.send_modify(|s| s.mode = mode);
            done
        }
        Order::Cut(done) => {
            state.send_modify(|s| s.cuts += 1);
            done
        }
    };
    // The connections run on this very thread: let them see the change before the test goes on.
    for _ in 0..3 {
        tokio::task::yield_now().await;
    }
    let _ = done.send(());
}

async fn connection(client: TcpStream, upstream: SocketAddr, mut state: watch::Receiver<State>) {
    let cuts = state.borrow().cuts;
    let mut ended = state.clone();
    let work = async {
        passes(&mut state).await?;
        let server = TcpStream::connect(upstream).await?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
        tokio::select! {
            end = requests(from_client, to_server, state.clone()) => end,
            end = replies(from_server, to_client, state.clone()) => end,
        }
    };
    // Either way both sockets are dropped here, and so closed.
    tokio::select! {
        _ = work => {}
        _ = ended.wait_for(|s| s.mode == Mode::Refuse || s.cuts != cuts) => {}
    }
}

/// Waits while the proxy stalls.
async fn passes(state: &mut watch::Receiver<State>) -> io::Result<Mode> {
    let passing = state.wait_for(|s| s.mode != Mode::Stall).await;
    passing.map(|s| s.mode).map_err(|_| io::ErrorKind::BrokenPipe.into())
}

async fn requests(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut state: watch::Receiver<State>,
) -> io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let length = from.read(&mut buffer).await?;
        if length == 0 {
            return Ok(());
        }
        passes(&mut state).await?;
        to.write_all(&buffer[..length]).await?;
    }
}

async fn replies(mut from: OwnedReadHalf, to: OwnedWriteHalf, mut state: watch::Receiver<State>) -> io::Result<()> {
    // Through a queue, so that a delay shifts replies in time without making fewer of them.
    let (queue, due) = mpsc::unbounded_channel();
    let writer = write_due(due, to, state.clone());
    let read = async {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let length = from.read(&mut buffer).await?;
            let wait = match passes(&mut state).await? {
                Mode::Delay(wait) => wait,
                Mode::DropReplies if length > 0 => continue,
                Mode::CloseAfterRequest => return Ok(()),
                _ => Duration::ZERO,
            };
            let _ = queue.send((Instant::now() + wait, buffer[..length].to_vec()));
            if length == 0 {
                return std::future::pending().await;
            }
        }
    };
    tokio::select! {
        end = read => end,
        end = writer => end,
    }
}

/// Writes each piece when its time has come; an empty piece is the end.
async fn write_due(
    mut due: mpsc::UnboundedReceiver<(Instant, Vec<u8>)>,
    mut to: OwnedWriteHalf,
    mut state: watch::Receiver<State>,
) -> io::Result<()> {
    while let Some((when, bytes)) = due.recv().await {
        sleep_until(when).await;
        passes(&mut state).await?;
        if bytes.is_empty() {
            break;
        }
        to.write_all(&bytes).await?;
    }
    Ok(())
}

#[cfg(test)]
#[path = "proxy_tests.rs"]
mod tests;
