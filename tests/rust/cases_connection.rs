//! Field cases CN: servers that are down, that hang, or whose address is hard to write; and what is left behind.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use grifo::{Client, ErrorKind, Limiter};
use grifo_tests::case::{Place, eventually, patient};
use grifo_tests::{Mode, Proxy, Server, server_binary};
use tokio::io::{AsyncReadExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;

const SECOND: Duration = Duration::from_secs(1);

/// A limiter with the options that nobody changed.
fn with_defaults(url: &str) -> Limiter {
    let started = Instant::now();
    let limiter = Client::open(url).unwrap().limiter("case", "1000/20000d").unwrap();
    assert!(started.elapsed() < SECOND, "the constructor waits: {:?}", started.elapsed());
    limiter
}

async fn degraded(limiter: &Limiter) -> bool {
    limiter.check("k").await.unwrap().degraded()
}

async fn normal(limiter: &Limiter, within: Duration) {
    let started = Instant::now();
    eventually("a decision of the store", within, async || !degraded(limiter).await).await;
    println!("normal after {:?}", started.elapsed());
}

/// Hits that the store does not decide end with the deadline: most of them soon after it, all of them on a busy machine.
async fn hits_end_in_time(limiter: &Limiter, count: usize) {
    let mut times = Vec::new();
    for _ in 0..count {
        let started = Instant::now();
        let decision = limiter.check("k").await.unwrap();
        times.push(started.elapsed());
        assert!(decision.degraded() && decision.allowed, "{decision:?}");
    }
    times.sort_unstable();
    assert!(times[count / 2] <= Duration::from_millis(70), "{times:?}");
    assert!(times[count - 1] <= Duration::from_millis(200), "{times:?}");
}

#[tokio::test]
async fn cn_01_a_server_that_is_down_at_the_start_is_used_once_it_is_up() {
    let mut server = Server::start_default();
    server.kill_hard();
    let limiter = with_defaults(&server.url());
    hits_end_in_time(&limiter, 30).await;
    let reason = limiter.check("k").await.unwrap().reason;
    assert!(matches!(reason, Some(ErrorKind::Connection | ErrorKind::Timeout)), "{reason:?}");
    server.restart();
    normal(&limiter, 2 * SECOND).await;
}

/// A listener that is so full that nobody gets through, and what fills it.
async fn full_listener() -> (TcpListener, Vec<TcpStream>) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    let mut waiting = Vec::new();
    while let Ok(stream) = tokio::time::timeout(SECOND / 5, TcpStream::connect(address)).await {
        waiting.push(stream.unwrap());
        assert!(waiting.len() < 100, "the listener never fills");
    }
    (listener, waiting)
}

#[tokio::test]
async fn cn_01_a_listener_that_never_accepts_hangs_nobody() {
    let (listener, waiting) = full_listener().await;
    let address = listener.local_addr().unwrap();
    let limiter = with_defaults(&format!("redis://{address}"));
    hits_end_in_time(&limiter, 10).await;
    drop((listener, waiting));
    let place = Place::redis();
    let upstream = place.server().unwrap().addr();
    let relay = tokio::spawn(Relay::serve(address, upstream, watch::channel(0).1, Arc::default()));
    normal(&limiter, 4 * SECOND).await;
    relay.abort();
}

#[tokio::test]
async fn cn_01_a_name_that_does_not_resolve_is_a_degraded_decision() {
    let limiter = with_defaults("redis://no-such-host.invalid");
    assert!(degraded(&limiter).await);
    let client = patient("redis://no-such-host.invalid").build().unwrap();
    let error = client.connect(5 * SECOND).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Connection | ErrorKind::Timeout), "{error}");
}

#[tokio::test]
async fn cn_01_what_listens_there_may_speak_another_protocol() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let http = tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = tokio::io::AsyncWriteExt::write_all(&mut stream, b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        }
    });
    let error = patient(&format!("redis://{address}")).build().unwrap().connect(2 * SECOND).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Protocol | ErrorKind::Connection), "{error}");
    http.abort();
}

#[tokio::test]
async fn cn_02_a_server_that_hangs_hangs_nobody() {
    let server = Server::start_default();
    let limiter = with_defaults(&server.url());
    normal(&limiter, 2 * SECOND).await;
    server.stop();
    hits_end_in_time(&limiter, 20).await;
    server.cont();
    normal(&limiter, 2 * SECOND).await;
}

#[tokio::test]
async fn cn_02_many_callers_of_a_server_that_hangs_wait_side_by_side() {
    let server = Server::start_default();
    let limiter = with_defaults(&server.url());
    normal(&limiter, 2 * SECOND).await;
    server.stop();
    let started = Instant::now();
    let hits: Vec<_> = (0..100)
        .map(|_| {
            let limiter = limiter.clone();
            tokio::spawn(async move { degraded(&limiter).await })
        })
        .collect();
    for hit in hits {
        assert!(hit.await.unwrap());
    }
    assert!(started.elapsed() < Duration::from_millis(400), "{:?}", started.elapsed());
    server.cont();
    normal(&limiter, 2 * SECOND).await;
}

/// A relay whose first connections can be made to pass nothing on, for good, while later ones work.
struct Relay {
    address: SocketAddr,
    stalled: watch::Sender<usize>,
    accepted: Arc<AtomicUsize>,
    given_up: Arc<AtomicUsize>,
}

impl Relay {
    async fn start(upstream: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let counters: Arc<[Arc<AtomicUsize>; 2]> = Arc::default();
        let (stalled, stalls) = watch::channel(0);
        let [accepted, given_up] = [Arc::clone(&counters[0]), Arc::clone(&counters[1])];
        tokio::spawn(Self::serve(address, upstream, stalls, counters));
        Self { address, stalled, accepted, given_up }
    }

    /// Counts accepted connections, and stalled ones that the client gave up.
    async fn serve(
        address: SocketAddr,
        upstream: SocketAddr,
        stalls: watch::Receiver<usize>,
        counters: Arc<[Arc<AtomicUsize>; 2]>,
    ) {
        let listener = TcpListener::bind(address).await.unwrap();
        loop {
            let (mut client, _) = listener.accept().await.unwrap();
            let index = counters[0].fetch_add(1, Ordering::SeqCst);
            let (mut stalls, given_up) = (stalls.clone(), Arc::clone(&counters[1]));
            tokio::spawn(async move {
                let mut server = TcpStream::connect(upstream).await.unwrap();
                tokio::select! {
                    _ = copy_bidirectional(&mut client, &mut server) => return,
                    Ok(_) = stalls.wait_for(|stalled| index < *stalled) => {}
                }
                let mut swallowed = [0; 4096];
                while client.read(&mut swallowed).await.is_ok_and(|length| length > 0) {}
                given_up.fetch_add(1, Ordering::SeqCst);
            });
        }
    }

    fn stall_all_so_far(&self) {
        self.stalled.send_replace(self.accepted.load(Ordering::SeqCst));
    }
}

#[tokio::test]
async fn cn_02_a_half_open_socket_is_dropped_and_replaced() {
    let place = Place::redis();
    let relay = Relay::start(place.server().unwrap().addr()).await;
    let limiter = with_defaults(&format!("redis://{}", relay.address));
    normal(&limiter, 2 * SECOND).await;
    for round in 1..=3 {
        relay.stall_all_so_far();
        assert!(degraded(&limiter).await, "round {round}");
        normal(&limiter, 2 * SECOND).await;
        let given_up = || async { relay.given_up.load(Ordering::SeqCst) >= round };
        eventually("the end of the half-open socket", 2 * SECOND, given_up).await;
    }
    assert_eq!(relay.accepted.load(Ordering::SeqCst), 4);
}

#[tokio::test]
async fn cn_02_a_half_open_socket_is_replaced_under_many_callers_too() {
    let place = Place::redis();
    let relay = Relay::start(place.server().unwrap().addr()).await;
    let limiter = with_defaults(&format!("redis://{}", relay.address));
    normal(&limiter, 2 * SECOND).await;
    relay.stall_all_so_far();
    let callers: Vec<_> = (0..50)
        .map(|_| {
            let limiter = limiter.clone();
            tokio::spawn(async move { normal(&limiter, 3 * SECOND).await })
        })
        .collect();
    for caller in callers {
        caller.await.unwrap();
    }
    assert!(relay.accepted.load(Ordering::SeqCst) <= 3, "{:?}", relay.accepted);
}

#[tokio::test]
async fn cn_02_a_slow_answer_is_no_reason_to_reconnect() {
    let place = Place::redis();
    let proxy = Proxy::start(place.server().unwrap().addr());
    let limiter = with_defaults(&proxy.url());
    normal(&limiter, 2 * SECOND).await;
    for _ in 0..6 {
        proxy.set(Mode::Delay(Duration::from_millis(80)));
        assert!(degraded(&limiter).await);
        proxy.set(Mode::Forward);
        let patient = limiter.clone().timeout(2 * SECOND).unwrap();
        assert!(!degraded(&patient).await);
    }
    assert_eq!(proxy.accepted(), 1);
}

#[tokio::test]
async fn cn_06_attempts_to_connect_are_spaced() {
    let place = Place::redis();
    let proxy = Proxy::start(place.server().unwrap().addr());
    let limiter = with_defaults(&proxy.url());
    normal(&limiter, 2 * SECOND).await;
    proxy.set(Mode::CloseAfterRequest);
    let before = proxy.accepted();
    let end = Instant::now() + 2 * SECOND;
    while Instant::now() < end {
        degraded(&limiter).await;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let attempts = proxy.accepted() - before;
    assert!((2..=12).contains(&attempts), "{attempts} attempts in two seconds");
    proxy.set(Mode::Forward);
    normal(&limiter, 3 * SECOND).await;
    assert_eq!(proxy.open(), 1);
}

/// The ends of connections to a port that this machine still holds; those that wait for their last packets apart.
fn sockets_to(port: u16) -> usize {
    let suffix = format!(":{port:04X}");
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap_or_default();
    let columns = table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    columns.filter(|columns| columns[2].ends_with(&suffix) && columns[3] != "06").count()
}

/// Hits a hundred times a second for some seconds, each degraded for one of some reasons, or late on a busy machine.
async fn hits_are_degraded(limiter: &Limiter, seconds: u32, reasons: &[ErrorKind]) {
    let end = Instant::now() + seconds * SECOND;
    while Instant::now() < end {
        let decision = limiter.check("k").await.unwrap();
        assert!(
            decision.reason.is_some_and(|reason| reason == ErrorKind::Timeout || reasons.contains(&reason)),
            "{decision:?}"
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A number of the server's statistics.
fn stat(connection: &mut redis::Connection, name: &str) -> usize {
    let info: String = redis::cmd("INFO").query(connection).unwrap();
    let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap();
    line.trim().parse().unwrap()
}

#[tokio::test]
async fn cn_06_refused_credentials_storm_no_server() {
    let server = Server::start_with(server_binary::installed()[0].kind, &["--requirepass", "right"]);
    let limiter = with_defaults(&server.url().replace("redis://", "redis://:wrong@"));
    let mut observer = server.connection().unwrap();
    let before = stat(&mut observer, "total_connections_received");
    hits_are_degraded(&limiter, 5, &[ErrorKind::Auth]).await;
    let attempts = stat(&mut observer, "total_connections_received") - before;
    println!("{attempts} attempts in five seconds");
    // Backoff of 50 ms, doubling up to a second, less up to half of it.
    assert!((5..=20).contains(&attempts), "{attempts} attempts in five seconds");
    assert!(sockets_to(server.port()) <= 2, "{} sockets", sockets_to(server.port()));
    server.command::<(), _>(&["CONFIG", "SET", "requirepass", "wrong"]);
    normal(&limiter, 3 * SECOND).await;
}

#[tokio::test]
async fn cn_06_a_server_with_too_many_clients_is_not_stormed() {
    let server = Server::start_with(server_binary::installed()[0].kind, &["--maxclients", "3"]);
    let mut others = Vec::new();
    let end = Instant::now() + 5 * SECOND;
    while others.len() < 3 {
        // A place may still be taken by who just looked whether the server is up.
        assert!(Instant::now() < end, "only {} clients may connect", others.len());
        others.extend(server.connection().ok());
    }
    let rejected = stat(&mut others[0], "rejected_connections");
    let limiter = with_defaults(&server.url());
    // The server closes behind its word, which may be lost by that.
    hits_are_degraded(&limiter, 5, &[ErrorKind::Unavailable, ErrorKind::Connection]).await;
    let attempts = stat(&mut others[0], "rejected_connections") - rejected;
    println!("{attempts} attempts in five seconds");
    assert!((5..=20).contains(&attempts), "{attempts} attempts in five seconds");
    assert_eq!(stat(&mut others[0], "connected_clients"), 3);
    assert!(sockets_to(server.port()) <= 4, "{} sockets", sockets_to(server.port()));
    others.pop();
    normal(&limiter, 3 * SECOND).await;
    assert!(stat(&mut others[0], "connected_clients") <= 3);
}
