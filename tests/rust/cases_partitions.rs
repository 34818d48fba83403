//! How many partitions there are: as the store has recorded, for everyone who shares it.

use std::time::{Duration, Instant};

use grifo::{Client, Decision, ErrorKind, FailurePolicy, Source};
use grifo_tests::case::{PATIENCE, eventually, every_key, patient, pttl, stored_keys};
use grifo_tests::cluster::Cluster;
use grifo_tests::{Mode, Monitor, Proxy, Server, server_binary};

const RECORD: &str = "grifo:{1bz}:1helper:partitions";

async fn hit(client: &Client, key: &str) -> Decision {
    client.limiter("case", "10/d").unwrap().check(key).await.unwrap()
}

/// The partitions that a server has recorded, once it has.
async fn recorded(server: &Server) -> String {
    let read = || server.command::<Option<String>, _>(&["GET", RECORD]);
    eventually("partitions are recorded", PATIENCE, async || read().is_some()).await;
    read().unwrap()
}

#[tokio::test]
async fn the_first_client_records_what_it_uses() {
    for (named, expected) in [(None, "64"), (Some(256), "256"), (Some(1), "1"), (Some(4096), "4096")] {
        let server = Server::start_default();
        let mut builder = patient(&server.url());
        if let Some(named) = named {
            builder = builder.partitions(named);
        }
        assert!(hit(&builder.build().unwrap(), "k").await.allowed);
        assert_eq!(recorded(&server).await, expected);
    }
}

#[tokio::test]
async fn who_names_no_number_adopts_the_recorded_one_from_the_first_call_on() {
    let server = Server::start_default();
    assert_eq!(hit(&patient(&server.url()).partitions(1024).build().unwrap(), "k").await.remaining, 9);
    recorded(&server).await;
    for remaining in [8, 7, 6] {
        // Each a new process, as it were: its first call counts where the others count.
        let client = patient(&server.url()).build().unwrap();
        assert_eq!(hit(&client, "k").await.remaining, remaining);
    }
}

#[tokio::test]
async fn who_names_another_number_is_refused_by_its_policy() {
    let server = Server::start_default();
    patient(&server.url()).build().unwrap().connect(PATIENCE).await.unwrap();
    assert_eq!(recorded(&server).await, "64");
    let other =
        |policy| Client::builder(server.url()).timeout(PATIENCE).partitions(128).on_failure(policy).build().unwrap();
    let expected = [
        (FailurePolicy::Open, Source::Open, true),
        (FailurePolicy::Closed, Source::Closed, false),
        (FailurePolicy::Local, Source::Fallback, true),
    ];
    for (policy, source, allowed) in expected {
        let client = other(policy);
        for _ in 0..3 {
            let decision = hit(&client, "k").await;
            assert_eq!((decision.source, decision.allowed), (source, allowed));
            assert_eq!(decision.reason, Some(ErrorKind::InvalidOptions));
        }
        assert_eq!(client.stats().degraded, 3);
    }
    let client = other(FailurePolicy::Raise);
    let error = client.limiter("case", "10/d").unwrap().check("k").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidOptions);
    assert!(error.message().contains("64") && error.message().contains("128"), "{error}");
    assert_eq!(client.connect(PATIENCE).await.unwrap_err().kind(), ErrorKind::InvalidOptions);
}

#[tokio::test]
async fn who_adopted_a_number_records_it_again_when_the_record_is_lost() {
    let server = Server::start_default();
    patient(&server.url()).partitions(256).build().unwrap().connect(PATIENCE).await.unwrap();
    let adopting = patient(&server.url()).build().unwrap();
    assert_eq!(hit(&adopting, "k").await.remaining, 9);
    server.command::<(), _>(&["FLUSHALL"]);
    // A key that may live longer than the record was made for has the record made anew.
    assert!(adopting.limiter("case", "10/30d").unwrap().check("k").await.unwrap().allowed);
    assert_eq!(recorded(&server).await, "256");
}

#[tokio::test]
async fn each_prefix_has_a_record_of_its_own() {
    let server = Server::start_default();
    for (prefix, partitions) in [("a", 64), ("b", 128)] {
        let client = patient(&server.url()).prefix(prefix).partitions(partitions).build().unwrap();
        client.connect(PATIENCE).await.unwrap();
        let record = RECORD.replace("grifo", prefix);
        assert_eq!(server.command::<String, _>(&["GET", &record]), partitions.to_string());
    }
}

#[tokio::test]
async fn the_record_outlives_every_other_key_and_is_renewed() {
    let server = Server::start_default();
    let client = patient(&server.url()).build().unwrap();
    for limits in ["1/s", "sliding-window-counter 10/30d", "100/d burst 50000", "fixed-window 5/36500d"] {
        let limiter = client.limiter("case", limits).unwrap();
        assert!(limiter.check("k").await.unwrap().allowed);
        let outlives = || {
            let longest = stored_keys(&server).iter().map(|key| pttl(&server, key)).max();
            pttl(&server, RECORD.as_bytes()) > longest.unwrap()
        };
        eventually(limits, PATIENCE, async || outlives()).await;
    }
    let server = Server::start_default();
    let _ = hit(&patient(&server.url()).build().unwrap(), "k").await;
    recorded(&server).await;
    server.command::<(), _>(&["PEXPIRE", RECORD, "5000"]);
    let _ = hit(&patient(&server.url()).build().unwrap(), "k").await;
    eventually("renewed", PATIENCE, async || pttl(&server, RECORD.as_bytes()) > 80_000_000).await;
}

#[tokio::test]
async fn a_record_that_is_not_ours_or_has_no_time_to_live_heals() {
    let spoil: [&[&str]; 6] = [
        &["SET", RECORD, "63"],
        &["SET", RECORD, "many"],
        &["SET", RECORD, "8192"],
        &["SET", RECORD, "0.5"],
        &["RPUSH", RECORD, "64"],
        &["SET", RECORD, "64"],
    ];
    for command in spoil {
        let server = Server::start_default();
        server.command::<(), _>(command);
        assert!(hit(&patient(&server.url()).build().unwrap(), "k").await.allowed);
        eventually("a time to live", PATIENCE, async || pttl(&server, RECORD.as_bytes()) > 0).await;
        assert_eq!(recorded(&server).await, "64", "{command:?}");
    }
}

#[tokio::test]
async fn the_record_is_read_once_and_beside_the_first_call() {
    let server = Server::start_default();
    let client = patient(&server.url()).build().unwrap();
    client.connect(PATIENCE).await.unwrap();
    let limiter = client.limiter("case", "10/s").unwrap();
    let (_, lines) = Monitor::record_async(&server, async {
        for _ in 0..20 {
            let _ = limiter.check("k").await.unwrap();
        }
    })
    .await;
    let sent: Vec<_> = lines.iter().filter(|line| line.name().starts_with("EVAL")).collect();
    // The limit's keys live longer than what the record was made for before any limit was known.
    assert!(sent.len() <= 21, "{sent:?}");
}

#[tokio::test]
async fn a_peek_reads_the_record_and_writes_none() {
    let server = Server::start_default();
    let client = patient(&server.url()).build().unwrap();
    let limiter = client.limiter("case", "10/d").unwrap();
    for _ in 0..3 {
        assert_eq!(limiter.peek("k").await.unwrap().remaining, 10);
    }
    assert!(every_key(&server).is_empty());
    assert_eq!(limiter.check("k").await.unwrap().remaining, 9);
    assert_eq!(recorded(&server).await, "64");
    let server = Server::start_default();
    assert_eq!(hit(&patient(&server.url()).partitions(1024).build().unwrap(), "k").await.remaining, 9);
    recorded(&server).await;
    let adopting = patient(&server.url()).build().unwrap().limiter("case", "10/d").unwrap();
    assert_eq!(adopting.peek("k").await.unwrap().remaining, 9);
}

#[tokio::test]
async fn peeks_do_not_keep_a_check_from_renewing_the_record() {
    let server = Server::start_default();
    let proxy = Proxy::start(server.addr());
    let client = Client::builder(proxy.url()).timeout(Duration::from_millis(300)).build().unwrap();
    assert!(!client.limiter("short", "1/s").unwrap().check("k").await.unwrap().degraded());
    let limiter = client.limiter("long", "10/30d").unwrap();
    proxy.set(Mode::Refuse);
    // With this call the record is to be renewed for longer, in vain.
    assert!(limiter.check("k").await.unwrap().degraded());
    proxy.set(Mode::Forward);
    eventually("a peek", PATIENCE, async || !limiter.peek("k").await.unwrap().degraded()).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    let _ = limiter.peek("k").await.unwrap();
    assert!(!limiter.check("k").await.unwrap().degraded());
    let outlives = || {
        let longest = stored_keys(&server).iter().map(|key| pttl(&server, key)).max();
        pttl(&server, RECORD.as_bytes()) > longest.unwrap()
    };
    eventually("the record outlives the key", PATIENCE, async || outlives()).await;
}

#[tokio::test]
async fn a_deleted_record_ends_the_refusal() {
    let server = Server::start_default();
    server.command::<(), _>(&["SET", RECORD, "64", "PX", "90000"]);
    let client = patient(&server.url()).partitions(128).build().unwrap();
    let limiter = client.limiter("case", "10/d").unwrap();
    assert_eq!(client.connect(PATIENCE).await.unwrap_err().kind(), ErrorKind::InvalidOptions);
    assert_eq!(limiter.check("k").await.unwrap_err().kind(), ErrorKind::InvalidOptions);
    server.command::<(), _>(&["DEL", RECORD]);
    client.connect(PATIENCE).await.unwrap();
    assert!(limiter.check("k").await.unwrap().allowed);
    assert_eq!(recorded(&server).await, "128");
}

#[tokio::test]
async fn a_node_that_hangs_with_the_record_holds_up_no_other() {
    let cluster = Cluster::start(server_binary::installed()[0].kind, 3, 0);
    let keys: Vec<String> = (0..60).map(|number| format!("key {number}")).collect();
    let seeds = cluster.masters();
    let holder = cluster.master_of_slot(0).unwrap();
    let seed = seeds.into_iter().find(|master| *master != holder).unwrap();
    let url = cluster.node(seed).url().replace("redis://", "redis+cluster://");
    cluster.node(holder).stop();
    let client = Client::builder(url).timeout(Duration::from_millis(500)).build().unwrap();
    let limiter = client.limiter("case", "1000/d").unwrap();
    let decisions = limiter.check_many(keys.iter().map(|key| (key, 1))).await.unwrap();
    let served: Vec<&String> =
        keys.iter().zip(&decisions).filter(|(_, decision)| !decision.degraded()).map(|(key, _)| key).collect();
    assert!(served.len() > 20, "{}", served.len());
    let mut times = Vec::new();
    for key in served.iter().cycle().take(200) {
        let started = Instant::now();
        assert!(!limiter.check(key).await.unwrap().degraded());
        times.push(started.elapsed());
    }
    times.sort_unstable();
    // Each would wait for ten milliseconds; on a busy machine some take so long anyway.
    assert!(times[20] < Duration::from_millis(8), "{times:?}");
    cluster.node(holder).cont();
}

#[tokio::test]
async fn a_record_that_a_server_refuses_to_renew_still_counts() {
    let server = Server::start_default();
    patient(&server.url()).partitions(256).build().unwrap().connect(PATIENCE).await.unwrap();
    server.command::<(), _>(&["CONFIG", "SET", "maxmemory", "1"]);
    let client = Client::builder(server.url()).timeout(PATIENCE).partitions(64).build().unwrap();
    assert_eq!(client.connect(PATIENCE).await.unwrap_err().kind(), ErrorKind::InvalidOptions);
    assert_eq!(every_key(&server).len(), 1);
}

#[test]
fn impossible_numbers_are_refused() {
    for partitions in [0, 3, 63, 65, 8192, u16::MAX] {
        for url in ["memory://", "redis://localhost", "redis+cluster://localhost"] {
            let error = Client::builder(url).partitions(partitions).build().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidOptions, "{partitions}");
        }
    }
}

#[tokio::test]
async fn a_cluster_is_shared_by_clients_that_name_a_number_and_clients_that_do_not() {
    let cluster = Cluster::start(server_binary::installed()[0].kind, 3, 0);
    let keys: Vec<String> = (0..200).map(|number| format!("key {number}")).collect();
    let named = patient(&cluster.url()).partitions(512).build().unwrap();
    let calls = || keys.iter().map(|key| (key, 1));
    let decisions = named.limiter("case", "10/d").unwrap().check_many(calls()).await.unwrap();
    assert!(decisions.iter().all(|decision| decision.remaining == 9));
    for remaining in [8, 7] {
        let adopting = patient(&cluster.url()).build().unwrap();
        let decisions = adopting.limiter("case", "10/d").unwrap().check_many(calls()).await.unwrap();
        let remainders: Vec<u64> = decisions.iter().map(|decision| decision.remaining).collect();
        assert!(remainders.iter().all(|found| *found == remaining), "{remainders:?}");
    }
    let other = Client::builder(cluster.url()).timeout(Duration::from_secs(5)).partitions(64).build().unwrap();
    let error = other.connect(PATIENCE).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidOptions);
}
