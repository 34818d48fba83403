//! Field cases SC: scripts that were forgotten, servers that were busy, and commands that were refused.

use std::time::{Duration, Instant};

use grifo::{Client, Decision, ErrorKind, Limiter, Source};
use grifo_tests::case::{Place, eventually, of_each_algorithm, patient, stored_keys};
use grifo_tests::{CommandStats, Server, ServerKind, server_binary};

const SET: &str = "token-bucket 10/20000d + sliding-window 11/20000d + fixed-window 12/20000d";

fn each_kind_of_limits() -> Vec<String> {
    of_each_algorithm("10/20000d").into_iter().chain([SET.to_owned()]).collect()
}

fn flush(server: &Server) {
    server.command::<(), _>(&["SCRIPT", "FLUSH"]);
}

fn from_store(decision: &Decision) -> bool {
    decision.source == Source::Store && !decision.degraded()
}

#[tokio::test]
async fn sc_01_a_script_flush_is_not_noticed() {
    let place = Place::redis();
    let server = place.server().unwrap();
    for limits in each_kind_of_limits() {
        let limiter = place.limiter(&limits);
        assert!(from_store(&limiter.check(&limits).await.unwrap()));
        flush(server);
        let decision = limiter.check(&limits).await.unwrap();
        assert!(from_store(&decision) && decision.allowed, "{limits}");
        assert_eq!(decision.remaining, 8, "{limits}");
    }
}

#[tokio::test]
async fn sc_01_every_operation_survives_a_flush_and_charges_once() {
    let place = Place::redis();
    let server = place.server().unwrap();
    let client = place.client();
    for limits in each_kind_of_limits() {
        let limiter = client.limiter("case", &*limits).unwrap();
        let key = limits.as_str();
        flush(server);
        assert_eq!(limiter.check(key).await.unwrap().remaining, 9, "{limits}");
        flush(server);
        assert_eq!(limiter.check_n(key, 2).await.unwrap().remaining, 7, "{limits}");
        flush(server);
        let many = limiter.check_many([(key, 1), ("other", 2), (key, 1)]).await.unwrap();
        assert_eq!(many.iter().map(|d| d.remaining).collect::<Vec<_>>(), [6, 8, 5], "{limits}");
        flush(server);
        assert_eq!(limiter.peek(key).await.unwrap().remaining, 5, "{limits}");
        flush(server);
        assert_eq!(limiter.acquire(key, 1, Duration::from_secs(1)).await.unwrap().remaining, 4, "{limits}");
        flush(server);
        assert_eq!(limiter.refund(key, 3).await.unwrap().remaining, 7, "{limits}");
        flush(server);
        assert_eq!(limiter.reset(key).await.unwrap().remaining, 10, "{limits}");
        assert!(from_store(&limiter.reset("other").await.unwrap()), "{limits}");
        flush(server);
        client.connect(Duration::from_secs(5)).await.unwrap();
        let reloads = client.stats().reloads;
        assert!(from_store(&limiter.check(key).await.unwrap()), "{limits}");
        assert_eq!(client.stats().reloads, reloads, "{limits}: connect loads every script");
    }
}

#[tokio::test]
async fn sc_01_a_restart_of_the_server_needs_none_of_the_process() {
    let mut server = Server::start_default();
    let client = Client::open(server.url()).unwrap();
    let limiter = client.limiter("case", "10/20000d").unwrap();
    eventually("a decision of the store", Duration::from_secs(2), async || !degraded(&limiter).await).await;
    server.restart();
    let restarted = Instant::now();
    eventually("a decision of the store", Duration::from_secs(1), async || !degraded(&limiter).await).await;
    println!("normal {:?} after the restart", restarted.elapsed());
}

async fn degraded(limiter: &Limiter) -> bool {
    limiter.check("k").await.unwrap().degraded()
}

/// 200 callers at once, half of whom find the script gone.
async fn stampede(limiter: &Limiter, server: &Server, key: &str) {
    let hit = |limiter: Limiter, key: String| async move { limiter.check(key).await.unwrap() };
    let hits: Vec<_> = (0..200).map(|_| tokio::spawn(hit(limiter.clone(), key.to_owned()))).collect();
    let server_side = server.connection();
    tokio::task::spawn_blocking(move || redis::cmd("SCRIPT").arg("FLUSH").exec(&mut server_side.unwrap()))
        .await
        .unwrap()
        .unwrap();
    let mut passed = 0;
    for hit in hits {
        let decision = hit.await.unwrap();
        assert!(from_store(&decision), "{decision:?}");
        passed += usize::from(decision.allowed);
    }
    assert_eq!(passed, 150, "{key}");
}

async fn stampedes() {
    const ROUNDS: u64 = 20;
    let place = Place::redis();
    let server = place.server().unwrap();
    let limiter = place.limiter("150/20000d");
    assert!(from_store(&limiter.check("warm").await.unwrap()));
    CommandStats::reset(server);
    for round in 0..ROUNDS {
        flush(server);
        stampede(&limiter, server, &round.to_string()).await;
    }
    let stats = CommandStats::read(server);
    let reloads = stats.calls("eval") + stats.calls("script|load");
    println!("{reloads} reloads after {} flushes", stats.calls("script|flush"));
    // Each flush costs one reload on this one connection, and a reload may come just before the next flush.
    assert!(reloads <= 2 * ROUNDS + 1, "{reloads}");
    assert!(reloads >= ROUNDS);
}

#[tokio::test]
async fn sc_03_a_flush_under_load_makes_one_caller_reload() {
    stampedes().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sc_03_a_flush_under_load_of_many_threads_makes_one_caller_reload() {
    stampedes().await;
}

#[tokio::test]
async fn sc_03_the_number_of_cached_scripts_does_not_grow() {
    let place = Place::redis();
    let server = place.server().unwrap();
    let client = place.client();
    for count in 1..50 {
        for limits in of_each_algorithm(&format!("{count}/{count}h")) {
            assert!(client.limiter(limits.clone(), &*limits).unwrap().check(&limits).await.unwrap().allowed);
        }
        let set = format!("{count}/h + fixed-window {count}/d");
        assert!(client.limiter(&set, &*set).unwrap().check(&set).await.unwrap().allowed);
    }
    let info: String = server.command(&["INFO", "memory"]);
    let cached = info.lines().find_map(|line| line.strip_prefix("number_of_cached_scripts:")).unwrap();
    assert!(cached.trim().parse::<usize>().unwrap() <= 6, "{cached}");
}

/// Runs somebody's endless script until it is killed.
fn endless_script(server: &Server) -> std::thread::JoinHandle<()> {
    let client = redis::Client::open(server.url()).unwrap();
    std::thread::spawn(move || {
        let mut connection = client.get_connection().unwrap();
        redis::cmd("EVAL").arg("while true do end").arg(0).exec(&mut connection).unwrap_err();
    })
}

#[tokio::test]
async fn sc_07_somebodys_endless_script_hangs_no_caller() {
    let server = Server::start_with(server_binary::installed()[0].kind, &["--lua-time-limit", "100"]);
    let client = Client::open(server.url()).unwrap();
    let limiter = client.limiter("case", "100/20000d").unwrap();
    eventually("a decision of the store", Duration::from_secs(2), async || !degraded(&limiter).await).await;
    let script = endless_script(&server);
    eventually("the hang", Duration::from_secs(2), async || degraded(&limiter).await).await;
    let (mut times, mut reasons) = (Vec::new(), Vec::new());
    while times.len() < 10 {
        let started = Instant::now();
        let decision = limiter.check("k").await.unwrap();
        times.push(started.elapsed());
        assert!(decision.degraded() && decision.allowed, "{decision:?}");
        reasons.push(decision.reason.unwrap());
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
    times.sort_unstable();
    assert!(times[5] <= Duration::from_millis(70) && times[9] <= Duration::from_millis(200), "{times:?}");
    assert!(reasons.contains(&ErrorKind::Unavailable), "the server said BUSY: {reasons:?}");
    server.command::<(), _>(&["SCRIPT", "KILL"]);
    let killed = Instant::now();
    eventually("a decision of the store", Duration::from_secs(2), async || !degraded(&limiter).await).await;
    println!("normal {:?} after the kill", killed.elapsed());
    script.join().unwrap();
}

/// A user of the server who may do all but some commands.
fn user_without(server: &Server, commands: &[&str]) -> String {
    let denied: Vec<String> = commands.iter().map(|command| format!("-{command}")).collect();
    let mut rules = vec!["ACL", "SETUSER", "app", "reset", "on", ">secret", "~*", "+@all"];
    rules.extend(denied.iter().map(String::as_str));
    server.command::<(), _>(&rules);
    server.url().replace("redis://", "redis://app:secret@")
}

#[tokio::test]
async fn sc_08_a_user_who_may_not_ask_the_time_is_told_so() {
    for kind in ServerKind::ALL.into_iter().filter(|kind| server_binary::find(*kind).is_some()) {
        let server = Server::start(kind);
        let url = user_without(&server, &["time"]);
        let client = patient(&url).build().unwrap();
        for limits in each_kind_of_limits() {
            let error = client.limiter("case", &*limits).unwrap().check("k").await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Permission, "{kind}: {error}");
            assert!(error.message().contains("right") && !error.message().contains("secret"), "{kind}: {error}");
        }
        assert_eq!(client.ping().await.unwrap().lacking, ["TIME"], "{kind}");
        let open = Client::builder(&url).timeout(Duration::from_secs(5)).build().unwrap();
        let decision = open.limiter("case", SET).unwrap().check("k").await.unwrap();
        assert!(decision.degraded() && decision.allowed, "{kind}");
        assert_eq!(decision.reason, Some(ErrorKind::Permission), "{kind}");
        assert_eq!((open.stats().degraded, open.stats().decisions), (1, 1), "{kind}");
        assert!(stored_keys(&server).is_empty(), "{kind}");
    }
}

#[tokio::test]
async fn sc_08_every_command_that_scripts_need_is_named_when_it_lacks() {
    for kind in ServerKind::ALL.into_iter().filter(|kind| server_binary::find(*kind).is_some()) {
        let server = Server::start(kind);
        for command in
            ["get", "mget", "pttl", "set", "zadd", "pexpire", "zrange", "zcount", "zcard", "zrem", "unlink", "evalsha"]
        {
            let client = patient(&user_without(&server, &[command])).build().unwrap();
            let lacking = client.ping().await.unwrap().lacking;
            assert_eq!(lacking, [command.to_uppercase()], "{kind}");
        }
    }
}

#[tokio::test]
async fn sc_08_what_a_user_may_not_do_is_a_permission_error_and_charges_nothing() {
    let server = Server::start_default();
    for (command, limits) in [
        ("evalsha", "10/20000d"),
        ("set", "10/20000d"),
        ("get", "fixed-window 10/20000d"),
        ("zadd", "sliding-window 10/20000d"),
        ("zrange", "fixed-window 10/20000d + sliding-window 10/20000d"),
        ("set", "sliding-window-counter 10/20000d"),
    ] {
        let client = patient(&user_without(&server, &[command])).build().unwrap();
        let limiter = client.limiter("case", limits).unwrap();
        let error = limiter.check("k").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Permission, "{command}, {limits}: {error}");
        assert!(stored_keys(&server).is_empty(), "{command}, {limits}");
    }
}

/// All that a user of grifo's needs.
const NEEDED: [&str; 18] = [
    "+evalsha",
    "+eval",
    "+evalsha_ro",
    "+eval_ro",
    "+time",
    "+get",
    "+mget",
    "+pttl",
    "+set",
    "+zadd",
    "+pexpire",
    "+zrange",
    "+zcount",
    "+zcard",
    "+zrem",
    "+zremrangebyrank",
    "+unlink",
    "+ping",
];

/// A user of the server who may do no more than what is needed, on some keys.
fn user_with_few_rights(server: &Server, keys: &str) -> String {
    let mut rules = vec!["ACL", "SETUSER", "app", "reset", "on", ">secret", keys, "-@all"];
    rules.extend(NEEDED.iter().filter(|name| !name.ends_with("_ro") || server.version().0 >= 7));
    server.command::<(), _>(&rules);
    server.url().replace("redis://", "redis://app:secret@")
}

#[tokio::test]
async fn cn_07_a_user_with_few_rights_can_do_all_that_is_needed() {
    let server = Server::start_default();
    let client = patient(&user_with_few_rights(&server, "~grifo:*")).build().unwrap();
    client.connect(Duration::from_secs(5)).await.unwrap();
    assert_eq!(client.ping().await.unwrap().lacking, Vec::<String>::new());
    for limits in each_kind_of_limits() {
        let limiter = client.limiter("case", &*limits).unwrap();
        assert_eq!(limiter.check_n("k", 3).await.unwrap().remaining, 7, "{limits}");
        assert!(!limiter.check_n("k", 8).await.unwrap().allowed, "{limits}");
        assert_eq!(limiter.refund("k", 1).await.unwrap().remaining, 8, "{limits}");
        assert_eq!(limiter.peek("k").await.unwrap().remaining, 8, "{limits}");
        assert_eq!(limiter.reset("k").await.unwrap().remaining, 10, "{limits}");
    }
}

#[tokio::test]
async fn cn_07_a_user_of_other_keys_is_told_so() {
    for kind in ServerKind::ALL.into_iter().filter(|kind| server_binary::find(*kind).is_some()) {
        let server = Server::start(kind);
        let client = patient(&user_with_few_rights(&server, "~other:*")).build().unwrap();
        for limits in each_kind_of_limits() {
            let error = client.limiter("case", &*limits).unwrap().check("k").await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Permission, "{kind}, {limits}: {error}");
        }
    }
}
