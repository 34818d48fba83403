//! Nodes that are announced under addresses that lead nowhere, and are reached through an address map.

use std::time::Duration;

use grifo::{Client, ErrorKind, Limiter};
use grifo_tests::case::patient;
use grifo_tests::cluster::Cluster;
use grifo_tests::{ClusterOptions, Proxy, server_binary};
use tokio::sync::Mutex;

const SECOND: Duration = Duration::from_secs(1);
/// The name by which every node of the clusters here goes.
const NAME: &str = "node.invalid";

/// Clusters of many nodes share few cores: one at a time.
static TURN: Mutex<()> = Mutex::const_new(());

/// A cluster whose nodes tell clients a name that does not resolve; it needs version 7 of the server.
fn cluster(masters: usize, replicas_per_master: usize) -> Option<Cluster> {
    let binary = &server_binary::installed()[0];
    if binary.version.0 < 7 {
        println!("{} announces no names", binary.kind);
        return None;
    }
    let args = ["--cluster-announce-hostname", NAME, "--cluster-preferred-endpoint-type", "hostname"];
    Some(Cluster::start_with(ClusterOptions {
        args: args.map(str::to_owned).into(),
        ..ClusterOptions::new(binary.kind, masters, replicas_per_master)
    }))
}

/// A proxy in front of each node, and the map that leads to them.
fn proxies(cluster: &Cluster) -> (Vec<Proxy>, Vec<(String, String)>) {
    let proxies: Vec<_> = cluster.nodes().iter().map(|node| Proxy::start(node.addr())).collect();
    let entry = |(node, proxy): (&grifo_tests::Server, &Proxy)| {
        (format!("{NAME}:{}", node.port()), format!("localhost:{}", proxy.port()))
    };
    let map = cluster.nodes().iter().zip(&proxies).map(entry).collect();
    (proxies, map)
}

fn keys() -> Vec<String> {
    (0..640).map(|number| format!("key {number}")).collect()
}

/// Hits every key once; the store must decide.
async fn hit_all(limiter: &Limiter) {
    let decisions = limiter.check_many(keys().into_iter().map(|key| (key, 1))).await.unwrap();
    assert!(decisions.iter().all(|decision| decision.allowed && !decision.degraded()));
}

async fn remaining_of_all(limiter: &Limiter) -> u64 {
    let mut remaining = Vec::new();
    for key in keys() {
        remaining.push(limiter.peek(&key).await.unwrap().remaining);
    }
    assert!(remaining.iter().all(|of_key| *of_key == remaining[0]), "{remaining:?}");
    remaining[0]
}

#[tokio::test]
async fn a_name_that_does_not_resolve_is_translated() {
    let _turn = TURN.lock().await;
    let Some(cluster) = cluster(3, 0) else { return };
    let without = patient(&cluster.url()).timeout(SECOND).build().unwrap();
    assert!(without.limiter("case", "10/d").unwrap().check("k").await.is_err());
    let with = patient(&cluster.url()).address_map([("NODE.Invalid", "127.0.0.1")]).build().unwrap();
    hit_all(&with.limiter("case", "10/20000d").unwrap()).await;
    assert!(cluster.dbsize_per_master().values().all(|size| *size > 100));
}

#[tokio::test]
async fn slots_that_move_are_followed_through_the_map() {
    let _turn = TURN.lock().await;
    let Some(cluster) = cluster(3, 0) else { return };
    let (proxies, map) = proxies(&cluster);
    let client = patient(&cluster.url()).address_map(map).build().unwrap();
    let limiter = client.limiter("case", "100/20000d").unwrap();
    hit_all(&limiter).await;
    assert!(proxies.iter().all(|proxy| proxy.open() == 1), "each node is reached through its proxy");
    let (from, to) = (cluster.masters()[0], cluster.masters()[1]);
    let slots = cluster.slots_of(from)[0].clone();
    // Half moved: some keys are asked for with ASK.
    let slot = *slots.start();
    cluster.begin_migration(slot, from, to);
    let stored: Vec<Vec<u8>> = cluster.node(from).command(&["CLUSTER", "GETKEYSINSLOT", &slot.to_string(), "5"]);
    assert!(!stored.is_empty(), "no key is in slot {slot}");
    cluster.migrate_keys(from, to, &stored);
    hit_all(&limiter).await;
    cluster.finish_migration(slot, from, to);
    // Moved: the old owner answers with MOVED.
    cluster.migrate_slots(from, to, slot + 1..=slot + 300);
    hit_all(&limiter).await;
    assert_eq!(remaining_of_all(&limiter).await, 97);
    assert!(proxies.iter().all(|proxy| proxy.accepted() == 1), "nothing was reached but through its proxy");
}

#[tokio::test]
async fn a_replica_that_takes_over_is_found_through_the_map() {
    let _turn = TURN.lock().await;
    let Some(cluster) = cluster(3, 3) else { return };
    let (proxies, map) = proxies(&cluster);
    let client = patient(&cluster.seed_url(3)).address_map(map).build().unwrap();
    let limiter = client.limiter("case", "100/20000d").unwrap();
    hit_all(&limiter).await;
    for replica in cluster.replicas().into_iter().take(2) {
        assert_eq!(proxies[replica].accepted(), 0);
        cluster.failover(replica);
        hit_all(&limiter).await;
        assert!(proxies[replica].accepted() > 0, "the new master is reached through its proxy");
    }
}

#[test]
fn a_map_must_be_readable_and_have_a_use() {
    for url in ["memory://", "redis://localhost", "redis+unix:///run/s"] {
        let error = Client::builder(url).address_map([("a", "b")]).build().expect_err(url);
        assert_eq!(error.kind(), ErrorKind::InvalidOptions, "{url}");
        assert!(error.message().contains("address map"), "{error}");
    }
    let open = |from: &str, to: &str| Client::builder("redis+cluster://h").address_map([(from, to)]).build();
    for (from, to) in [("", "b"), ("a", "b:1"), ("a:1", "b"), ("::1", "b"), ("a:0", "b:1"), ("u:S3cr3t@a:1", "b:1")] {
        let error = open(from, to).expect_err(from);
        assert_eq!(error.kind(), ErrorKind::InvalidOptions, "{from} {to}");
        assert!(!error.message().contains("S3cr3t"), "{error}");
    }
    for (from, to) in [("a", "b"), ("a:1", "b:2"), ("[::1]:1", "b:2"), ("[::1]", "b"), ("10.0.0.1:6379", "[::1]:7001")]
    {
        open(from, to).unwrap();
    }
}
