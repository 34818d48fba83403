//! The same promises where sentinels tell the master: who is asked, who is believed, and what goes wrong by hand.

use std::time::{Duration, Instant};

use grifo::{Client, ClientBuilder, Error, ErrorKind};
use grifo_tests::case::{PATIENCE, eventually, patient};
use grifo_tests::sentinel::MASTER_NAME;
use grifo_tests::workers::{self, Work};
use grifo_tests::{CommandStats, Mode, Proxy, SentinelOptions, Sentinels, Server, ServerKind, server_binary};
use tokio::sync::Mutex;

const SECOND: Duration = Duration::from_secs(1);

/// Six servers share few cores: one deployment at a time.
static TURN: Mutex<()> = Mutex::const_new(());

fn default_kind() -> ServerKind {
    server_binary::installed()[0].kind
}

fn with_login(url: &str, login: &str) -> String {
    url.replace("://", &format!("://{login}@"))
}

/// A sentinel of its own that has been told of one server, and never acts.
fn lone_sentinel(host: &str, master: &Server, settings: &[&str]) -> Server {
    lone_sentinel_of(host, master.port(), master.kind(), settings)
}

fn lone_sentinel_of(host: &str, port: u16, kind: ServerKind, settings: &[&str]) -> Server {
    let sentinel = Server::start_with(kind, &["--sentinel"]);
    for setting in settings {
        sentinel.command::<(), _>(&["SENTINEL", "CONFIG", "SET", setting, "yes"]);
    }
    sentinel.command::<(), _>(&["SENTINEL", "MONITOR", MASTER_NAME, host, &port.to_string(), "2"]);
    sentinel.command::<(), _>(&["SENTINEL", "SET", MASTER_NAME, "down-after-milliseconds", "600000"]);
    sentinel
}

fn url_of(sentinels: &[&Server]) -> String {
    let hosts: Vec<_> = sentinels.iter().map(|sentinel| sentinel.addr().to_string()).collect();
    format!("redis+sentinel://{}/{MASTER_NAME}", hosts.join(","))
}

async fn connects(builder: ClientBuilder) -> Result<Duration, Error> {
    let client = builder.build()?;
    let started = Instant::now();
    client.connect(PATIENCE).await?;
    let took = started.elapsed();
    assert!(client.limiter("case", "10/d")?.check("k").await?.allowed);
    Ok(took)
}

#[tokio::test]
async fn sentinels_that_are_down_or_hang_delay_nobody() {
    let _turn = TURN.lock().await;
    let mut all = Sentinels::start(default_kind());
    // So patient that waiting for one that hangs would show.
    let client = |all: &Sentinels| patient(&all.url()).connect_timeout(PATIENCE);
    let took = connects(client(&all)).await.unwrap();
    println!("connected after {took:?}");
    for (down, hanging) in [(&[0][..], &[][..]), (&[], &[0]), (&[0], &[1]), (&[], &[0, 1]), (&[0, 1], &[])] {
        down.iter().for_each(|index| all.sentinel_mut(*index).kill_hard());
        hanging.iter().for_each(|index| all.sentinels()[*index].stop());
        let took = connects(client(&all)).await.unwrap_or_else(|error| panic!("{down:?}, {hanging:?}: {error}"));
        assert!(took < 2 * SECOND, "{down:?} down, {hanging:?} hanging: {took:?}");
        hanging.iter().for_each(|index| all.sentinels()[*index].cont());
        down.iter().for_each(|index| all.restart_sentinel(*index));
    }
}

#[tokio::test]
async fn what_is_wrong_is_said_though_a_sentinel_hangs() {
    let server = Server::start_default();
    let (knows, hangs) = (lone_sentinel("127.0.0.1", &server, &[]), lone_sentinel("127.0.0.1", &server, &[]));
    hangs.stop();
    let url = url_of(&[&hangs, &knows]);
    let wrong_name = url.replace(MASTER_NAME, "mymister");
    let no_sentinel = url_of(&[&hangs, &server]);
    for (url, kind, hint) in [
        (wrong_name, ErrorKind::Unavailable, "no sentinel knows a master 'mymister'"),
        (no_sentinel, ErrorKind::Script, "is no sentinel"),
        (with_login(&url, ":needless"), ErrorKind::Auth, "password"),
    ] {
        let client = Client::builder(&url).timeout(3 * SECOND).connect_timeout(3 * SECOND).build().unwrap();
        let error = client.connect(3 * SECOND).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.message().contains(hint), "{error}");
        let decision = client.limiter("case", "10/d").unwrap().check("k").await.unwrap();
        assert!(decision.allowed && decision.reason == Some(kind), "{decision:?}");
    }
    hangs.cont();
}

#[tokio::test]
async fn no_sentinel_at_all_is_a_degraded_decision_in_time() {
    let mut server = Server::start_default();
    server.kill_hard();
    let limiter = Client::open(url_of(&[&server])).unwrap().limiter("case", "10/d").unwrap();
    for _ in 0..20 {
        let started = Instant::now();
        let decision = limiter.check("k").await.unwrap();
        assert!(matches!(decision.reason, Some(ErrorKind::Connection | ErrorKind::Timeout)), "{decision:?}");
        assert!(started.elapsed() < SECOND / 5, "{:?}", started.elapsed());
    }
}

#[tokio::test]
async fn sentinels_that_fail_are_not_stormed() {
    let server = Server::start_default();
    let sentinel = lone_sentinel("127.0.0.1", &server, &[]);
    let url = url_of(&[&sentinel]).replace(MASTER_NAME, "unknown");
    let limiter = Client::open(url).unwrap().limiter("case", "10/d").unwrap();
    let end = Instant::now() + 2 * SECOND;
    while Instant::now() < end {
        assert!(limiter.check("k").await.unwrap().degraded());
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert!(accepted(&sentinel) < 30, "{}", accepted(&sentinel));
}

#[tokio::test]
async fn a_master_that_is_slow_storms_no_sentinel() {
    let server = Server::start_default();
    let proxy = Proxy::start(server.addr());
    let sentinel = lone_sentinel_of("127.0.0.1", proxy.port(), server.kind(), &[]);
    let limiter = Client::open(url_of(&[&sentinel])).unwrap().limiter("case", "10/d").unwrap();
    eventually("a decision", 2 * SECOND, async || !limiter.check("k").await.unwrap().degraded()).await;
    proxy.set(Mode::Delay(Duration::from_millis(80)));
    let before = accepted(&sentinel);
    let end = Instant::now() + 2 * SECOND;
    while Instant::now() < end {
        assert!(limiter.check("k").await.unwrap().degraded());
    }
    let attempts = accepted(&sentinel) - before;
    assert!((1..=8).contains(&attempts), "{attempts}");
    proxy.set(Mode::Forward);
    eventually("a decision", 2 * SECOND, async || !limiter.check("k").await.unwrap().degraded()).await;
}

/// Connections that a server has accepted so far, those of the harness among them.
fn accepted(server: &Server) -> usize {
    let info: String = server.command(&["INFO", "stats"]);
    let count = info.lines().find_map(|line| line.strip_prefix("total_connections_received:"));
    count.and_then(|count| count.trim().parse().ok()).unwrap()
}

#[tokio::test]
async fn keys_of_all_partitions_share_calls() {
    let server = Server::start_default();
    let sentinel = lone_sentinel("127.0.0.1", &server, &[]);
    let client = patient(&url_of(&[&sentinel])).build().unwrap();
    client.connect(PATIENCE).await.unwrap();
    let limiter = client.limiter("case", "10/20000d").unwrap();
    assert!(limiter.check("k").await.unwrap().allowed);
    CommandStats::reset(&server);
    let decisions = limiter.check_many((0..64).map(|number| (format!("key {number}"), 1))).await.unwrap();
    assert!(decisions.iter().all(|decision| decision.allowed && !decision.degraded()));
    assert_eq!(CommandStats::read(&server).calls("evalsha"), 2);
}

#[tokio::test]
async fn a_sentinel_that_names_a_replica_is_not_believed() {
    let (master, replica) = (Server::start_default(), Server::start_default());
    replica.command::<(), _>(&["REPLICAOF", "127.0.0.1", &master.port().to_string()]);
    let (right, stale) = (lone_sentinel("127.0.0.1", &master, &[]), lone_sentinel("127.0.0.1", &replica, &[]));
    for _ in 0..10 {
        connects(patient(&url_of(&[&stale, &right]))).await.unwrap();
    }
    let client = Client::builder(url_of(&[&stale])).connect_timeout(SECOND).build().unwrap();
    let error = client.connect(SECOND).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.message().contains(&format!("127.0.0.1:{} as the master", replica.port())), "{error}");
    // A peek would be answered by a replica too.
    let peeked = client.limiter("case", "10/d").unwrap().peek("k").await.unwrap();
    assert!(peeked.degraded(), "{peeked:?}");
}

#[tokio::test]
async fn a_master_may_be_announced_by_its_name() {
    let server = Server::start_default();
    let sentinel = lone_sentinel("localhost", &server, &["resolve-hostnames", "announce-hostnames"]);
    let (host, _): (String, u16) = sentinel.command(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER_NAME]);
    assert_eq!(host, "localhost");
    connects(patient(&url_of(&[&sentinel]))).await.unwrap();
}

#[tokio::test]
async fn ping_and_the_database_are_those_of_the_master() {
    for binary in server_binary::installed() {
        let server = Server::start(binary.kind);
        let sentinel = lone_sentinel("127.0.0.1", &server, &[]);
        let client = patient(&format!("{}/3", url_of(&[&sentinel]))).build().unwrap();
        let pong = client.ping().await.unwrap();
        assert_eq!(pong.server, if binary.is_valkey { "valkey" } else { "redis" }, "{}", binary.kind);
        assert!(pong.version.starts_with(&format!("{}.{}.", binary.version.0, binary.version.1)), "{pong:?}");
        assert!(pong.lacking.is_empty(), "{pong:?}");
        assert!(client.limiter("case", "10/d").unwrap().check("k").await.unwrap().allowed);
        let keyspace: String = server.command(&["INFO", "keyspace"]);
        assert!(keyspace.contains("db3:") && !keyspace.contains("db0:"), "{keyspace}");
    }
}

#[tokio::test]
async fn sentinels_and_servers_have_passwords_of_their_own() {
    let _turn = TURN.lock().await;
    let (password, sentinel_password) = (Some("p#rivate".to_owned()), Some("s/ecret".to_owned()));
    let all =
        Sentinels::start_with(SentinelOptions { password, sentinel_password, ..SentinelOptions::new(default_kind()) });
    let url = with_login(&all.url(), ":p%23rivate");
    connects(patient(&url).sentinel_password("s/ecret")).await.unwrap();
    connects(patient(&url).sentinel_user("default").sentinel_password("s/ecret")).await.unwrap();
    for (builder, hint) in [
        (patient(&url), "option sentinel_password"),
        (patient(&url).sentinel_password("p#rivate"), "refused the options sentinel_user and sentinel_password"),
        (patient(&url).sentinel_user("nobody").sentinel_password("s/ecret"), "refused the options"),
        (patient(&all.url()).sentinel_password("s/ecret"), "put them into the URL"),
        (patient(&with_login(&all.url(), ":s%2Fecret")).sentinel_password("s/ecret"), "refused user or password"),
    ] {
        let shown = format!("{builder:?}");
        let error = connects(builder).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Auth, "{hint}: {error}");
        assert!(error.message().contains(hint), "{error}");
        for secret in ["rivate", "ecret"] {
            assert!(!format!("{shown} {error} {error:?}").contains(secret), "{error}");
        }
    }
}

#[tokio::test]
async fn the_user_of_the_sentinels_needs_one_right() {
    for binary in server_binary::installed() {
        let server = Server::start(binary.kind);
        let sentinel = lone_sentinel("127.0.0.1", &server, &[]);
        let set_user = |right| {
            sentinel.command::<(), _>(&["ACL", "SETUSER", "grifo", "reset", "on", ">change-me", "-@all", right])
        };
        let log_in = || patient(&url_of(&[&sentinel])).sentinel_user("grifo").sentinel_password("change-me");
        set_user("+sentinel|get-master-addr-by-name");
        connects(log_in()).await.unwrap_or_else(|error| panic!("{}: {error}", binary.kind));
        set_user("+ping");
        let error = connects(log_in()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Permission, "{}: {error}", binary.kind);
        assert!(error.message().contains("+sentinel|get-master-addr-by-name"), "{error}");
    }
}

#[test]
fn the_options_of_sentinels_are_for_sentinels_alone() {
    for url in ["memory://", "redis://localhost", "redis+cluster://localhost"] {
        for builder in [Client::builder(url).sentinel_user("u"), Client::builder(url).sentinel_password("S3cr3t")] {
            let error = builder.build().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidOptions, "{url}");
            assert!(error.message().contains("redis+sentinel://") && !error.message().contains("S3cr"), "{error}");
        }
    }
    let error = Client::builder("redis+sentinel://localhost/main").sentinel_user("u").build().unwrap_err();
    assert!(error.message().contains("sentinel_password"), "{error}");
}

#[test]
fn eight_processes_share_a_limit_exactly() {
    let _turn = TURN.blocking_lock();
    let all = Sentinels::start(default_kind());
    for limits in ["500/20000d", "sliding-window 500/20000d", "500/20000d + sliding-window-counter 400/20000d"] {
        let program = env!("CARGO_BIN_EXE_worker");
        let work = Work { program, url: &all.url(), limits, keys: 1, hits: 20, callers: 10, prefix: limits };
        let counts = workers::run(8, &work);
        assert_eq!((counts.errors, counts.degraded), (0, 0), "{limits}");
        assert_eq!(counts.allowed, if limits.contains('+') { 400 } else { 500 }, "{limits}");
    }
}

/// Connections to a server that are not the harness's own, and not those of sentinels and replicas.
fn connections(server: &Server) -> usize {
    let list: String = server.command(&["CLIENT", "LIST", "TYPE", "normal"]);
    list.lines().filter(|line| !line.contains("cmd=client") && !line.contains("name=sentinel-")).count()
}

fn tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

#[tokio::test]
async fn a_client_keeps_one_connection_and_leaves_nothing() {
    let server = Server::start_default();
    let sentinel = lone_sentinel("127.0.0.1", &server, &[]);
    eventually("connections of the sentinel", PATIENCE, async || connections(&server) == 0).await;
    for close in [false, true] {
        let client = patient(&url_of(&[&sentinel])).build().unwrap();
        let limiter = client.limiter("case", "10/20000d").unwrap();
        assert!(limiter.acquire("k", 1, SECOND).await.unwrap().allowed);
        assert_eq!(connections(&server), 1);
        eventually("no connection to the sentinel", 2 * SECOND, async || connections(&sentinel) == 0).await;
        if close {
            client.close();
            assert_eq!(limiter.check("k").await.unwrap_err().kind(), ErrorKind::Closed);
        } else {
            drop((client, limiter));
        }
        eventually("no connection", 2 * SECOND, async || connections(&server) == 0).await;
        eventually("no task", 2 * SECOND, async || tasks() == 0).await;
    }
}

#[tokio::test]
async fn a_client_that_is_dropped_while_its_sentinels_hang_leaves_nothing() {
    let server = Server::start_default();
    let sentinel = lone_sentinel("127.0.0.1", &server, &[]);
    sentinel.stop();
    let limiter = Client::open(url_of(&[&sentinel])).unwrap().limiter("case", "10/d").unwrap();
    assert!(limiter.check("k").await.unwrap().degraded());
    assert!(tasks() > 0);
    drop(limiter);
    eventually("no task", SECOND / 2, async || tasks() == 0).await;
    sentinel.cont();
}

#[test]
fn a_client_outlives_the_runtime_that_first_polled_it() {
    let server = Server::start_default();
    let sentinel = lone_sentinel("127.0.0.1", &server, &[]);
    let limiter = patient(&url_of(&[&sentinel])).build().unwrap().limiter("case", "10/20000d").unwrap();
    for used in 1..=3 {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        assert_eq!(runtime.block_on(limiter.check("k")).unwrap().remaining, 10 - used);
    }
}
