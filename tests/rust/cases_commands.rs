//! Field cases SC and CL-02: what a server is asked, command by command, and what works while it refuses writes.

use std::collections::HashSet;
use std::time::Duration;

use grifo::{Client, ErrorKind, Limiter, Source};
use grifo_tests::case::{Place, eventually, of_each_algorithm, patient};
use grifo_tests::declared::{assert_declared, calls, keys_of};
use grifo_tests::{Monitor, Server, ServerKind, server_binary};

const SET: &str = "token-bucket 10/20000d + sliding-window 11/20000d + fixed-window 12/20000d";

fn each_kind_of_limits() -> Vec<String> {
    let pair = "sliding-window-counter 10/20000d + sliding-window-counter 10/30000d".to_owned();
    of_each_algorithm("10/20000d").into_iter().chain([SET.to_owned(), pair]).collect()
}

async fn one_round_trip(server: &Server, what: &str, call: impl Future<Output = bool>) {
    let (worked, lines) = Monitor::record_async(server, call).await;
    assert!(worked, "{what}");
    assert_declared(&lines, what);
    assert_eq!(calls(&lines).len(), 1, "{what}: {lines:?}");
}

#[tokio::test]
async fn cl_02_every_operation_is_one_round_trip_that_declares_its_keys() {
    let place = Place::redis();
    let server = place.server().unwrap();
    let client = place.client();
    client.connect(Duration::from_secs(5)).await.unwrap();
    // The record of partitions outlives this key, and so every other.
    assert!(client.limiter("first", "sliding-window 1/36500d").unwrap().check("k").await.unwrap().allowed);
    for limits in each_kind_of_limits() {
        let limiter = client.limiter("case", &*limits).unwrap();
        let key = limits.as_bytes();
        let what = |operation: &str| format!("{limits}, {operation}");
        one_round_trip(server, &what("check"), async { limiter.check(key).await.unwrap().allowed }).await;
        one_round_trip(server, &what("check_n"), async { limiter.check_n(key, 2).await.unwrap().allowed }).await;
        one_round_trip(server, &what("denied"), async { !limiter.check_n(key, 9).await.unwrap().allowed }).await;
        one_round_trip(server, &what("cost 0"), async { limiter.check_n(key, 0).await.unwrap().allowed }).await;
        one_round_trip(server, &what("peek"), async { limiter.peek(key).await.unwrap().remaining == 7 }).await;
        let acquire = async { limiter.acquire(key, 1, Duration::from_secs(1)).await.unwrap().allowed };
        one_round_trip(server, &what("acquire"), acquire).await;
        one_round_trip(server, &what("refund"), async { limiter.refund(key, 2).await.unwrap().remaining == 8 }).await;
        one_round_trip(server, &what("refund 0"), async { limiter.refund(key, 0).await.unwrap().allowed }).await;
        let many = async { limiter.check_many([(key, 1), (b"other", 2), (key, 1)]).await.unwrap().len() == 3 };
        one_round_trip(server, &what("check_many"), many).await;
        one_round_trip(server, &what("reset"), async { limiter.reset(key).await.unwrap().remaining == 10 }).await;
    }
}

#[tokio::test]
async fn cl_02_a_thousand_keys_in_one_call_are_all_declared() {
    let place = Place::redis();
    let server = place.server().unwrap();
    let limiter = place.limiter(SET);
    let keys = (0..1000).map(|index| (format!("key {index} {{tag}}"), 1 + index % 3));
    let (decisions, lines) = Monitor::record_async(server, limiter.check_many(keys)).await;
    assert!(decisions.unwrap().iter().all(|decision| decision.allowed));
    let lines: Vec<_> =
        lines.into_iter().filter(|line| line.is_from_script() || line.name().contains("EVAL")).collect();
    let declared: HashSet<_> = calls(&lines).into_iter().flat_map(keys_of).collect();
    assert_eq!(declared.len(), 3000 + 1, "three of each, and the record of partitions");
    assert_declared(&lines, "a thousand keys");
}

/// A peek on a server that refuses writes, with the script in its cache and without it.
async fn peeks(server: &Server, limiter: &Limiter, why: &str) {
    let what = format!("{}, {}, {why}", server.kind(), limiter.limits());
    let decision = limiter.peek("k").await.unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!((decision.source, decision.remaining), (Source::Store, 7), "{what}");
    server.command::<(), _>(&["SCRIPT", "FLUSH"]);
    let decision = limiter.peek("k").await.unwrap_or_else(|error| panic!("{what}, script gone: {error}"));
    assert_eq!((decision.source, decision.remaining), (Source::Store, 7), "{what}, script gone");
    let error = limiter.check("k").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{what}: {error}");
}

async fn refuse_writes(server: &Server, why: &str) {
    let config = |name: &str, value: &str| server.command::<(), _>(&["CONFIG", "SET", name, value]);
    match why {
        "OOM" => config("maxmemory", "1"),
        "NOREPLICAS" => config("min-replicas-to-write", "1"),
        "READONLY" => server.command(&["REPLICAOF", "127.0.0.1", "1"]),
        _ => {
            // A folder where the file should be: saving fails.
            std::fs::create_dir(server.dir().join("dump.rdb")).unwrap();
            config("save", "3600 1");
            server.command::<(), _>(&["BGSAVE"]);
            let failed = || server.command::<String, _>(&["INFO", "persistence"]).contains("last_bgsave_status:err");
            eventually("a failed save", Duration::from_secs(5), async || failed()).await;
        }
    }
}

async fn peeks_while_writes_are_refused(why: &str) {
    let installed = |kind: &ServerKind| server_binary::find(*kind).is_some_and(|binary| binary.version.0 >= 7);
    for kind in ServerKind::ALL.into_iter().filter(installed) {
        let server = Server::start(kind);
        let client = patient(&server.url()).timeout(Duration::from_secs(2)).build().unwrap();
        let limiters: Vec<_> =
            each_kind_of_limits().iter().map(|limits| client.limiter(limits, &**limits).unwrap()).collect();
        for limiter in &limiters {
            assert!(limiter.check_n("k", 3).await.unwrap().allowed);
        }
        refuse_writes(&server, why).await;
        for limiter in &limiters {
            peeks(&server, limiter, why).await;
        }
    }
}

#[tokio::test]
async fn sc_08_peek_works_on_a_server_out_of_memory() {
    peeks_while_writes_are_refused("OOM").await;
}

#[tokio::test]
async fn sc_08_peek_works_on_a_server_without_its_replicas() {
    peeks_while_writes_are_refused("NOREPLICAS").await;
}

#[tokio::test]
async fn sc_08_peek_works_on_a_server_that_cannot_save() {
    peeks_while_writes_are_refused("MISCONF").await;
}

#[tokio::test]
async fn sc_08_peek_works_on_a_replica() {
    peeks_while_writes_are_refused("READONLY").await;
}

#[tokio::test]
async fn sc_08_refused_writes_are_named_and_do_not_last() {
    for kind in ServerKind::ALL.into_iter().filter(|kind| server_binary::find(*kind).is_some()) {
        let server = Server::start(kind);
        let client = Client::builder(server.url()).timeout(Duration::from_secs(2)).build().unwrap();
        for limits in each_kind_of_limits() {
            let limiter = client.limiter("case", &*limits).unwrap();
            server.command::<(), _>(&["CONFIG", "SET", "maxmemory", "1"]);
            let refused = limiter.check("k").await.unwrap();
            assert_eq!(refused.reason, Some(ErrorKind::Unavailable), "{kind}, {limits}: {refused:?}");
            server.command::<(), _>(&["CONFIG", "SET", "maxmemory", "0"]);
            let decision = limiter.check("k").await.unwrap();
            assert_eq!((decision.source, decision.remaining), (Source::Store, 9), "{kind}, {limits}");
            assert_eq!(limiter.reset("k").await.unwrap().remaining, 10);
        }
    }
}
