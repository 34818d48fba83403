//! Nodes of a cluster under every kind of address, and nodes that join and leave.

use std::time::Duration;

use grifo::{Client, FailurePolicy, Limiter};
use grifo_tests::case::{START, check_at, eventually, hits_at, of_each_algorithm, peek_at, refund_at};
use grifo_tests::cluster::Cluster;
use grifo_tests::cluster_case::{TURN, client, default_kind, keys};
use grifo_tests::{ClusterOptions, Endpoint, Server, ServerKind, server_binary};

const SECOND: Duration = Duration::from_secs(1);
const SET: &str = "10/min + sliding-window 12/h + fixed-window 14/d";

fn one_seed(cluster: &Cluster) -> Client {
    client(&cluster.seed_url(1), FailurePolicy::Raise)
}

/// What is promised of any store, on keys of every master, through one seed.
async fn conforms(cluster: &Cluster, what: &str) {
    let client = one_seed(cluster);
    client.connect(10 * SECOND).await.unwrap_or_else(|error| panic!("{what}: {error}"));
    for limits in of_each_algorithm("10/min").into_iter().chain([SET.to_owned()]) {
        let limiter = client.limiter(&*limits, &*limits).unwrap();
        for key in keys(12) {
            assert_eq!(hits_at(&limiter, START, &key, 15).await, 10, "{what}, {limits}, {key}");
            assert_eq!(peek_at(&limiter, START, &key).await.remaining, 0, "{what}, {limits}, {key}");
            assert_eq!(refund_at(&limiter, START, &key, 3).await.limits[0].remaining, 3, "{what}, {limits}, {key}");
            let denied = check_at(&limiter, START, &key, 4).await;
            assert!(!denied.allowed, "{what}, {limits}, {key}");
            let later = START + denied.retry_after.unwrap();
            assert!(check_at(&limiter, later, &key, 4).await.allowed, "{what}, {limits}, {key}");
        }
        let many = limiter.check_many(keys(300).iter().map(|key| (format!("many {key}"), 4))).await.unwrap();
        assert!(many.iter().all(|decision| decision.limits[0].remaining == 6), "{what}, {limits}");
    }
    assert_eq!(client.stats().degraded, 0, "{what}");
    assert!(client.ping().await.unwrap().lacking.is_empty(), "{what}");
    let sizes = cluster.dbsize_per_master();
    assert!(sizes.values().all(|size| *size > 100), "{what}: every master was asked: {sizes:?}");
}

/// Moves slots forth and back while they are used, so that redirections name the nodes too.
async fn redirections_are_followed(cluster: Cluster, what: &str) {
    let limiter = one_seed(&cluster).limiter("moving", "1000/20000d").unwrap();
    let keys = keys(200);
    let check_all = async |left: u64| {
        let decisions = limiter.check_many(keys.iter().map(|key| (key, 1))).await.unwrap();
        assert!(decisions.iter().all(|decision| decision.remaining == left), "{what}, {left}");
    };
    check_all(999).await;
    let (from, to) = (cluster.masters()[0], cluster.masters()[1]);
    cluster.migrate_slots(from, to, 0..=0);
    check_all(998).await;
    cluster.begin_migration(0, to, from);
    let of_slot: Vec<String> = cluster.node(to).command(&["CLUSTER", "GETKEYSINSLOT", "0", "100"]);
    assert!(!of_slot.is_empty());
    cluster.migrate_keys(to, from, &of_slot);
    check_all(997).await;
}

/// A cluster whose nodes are named in a way, on each version that can.
async fn nodes_are_found(endpoint: Endpoint, ipv6: bool) {
    let _turn = TURN.lock().await;
    let needs_7 = endpoint != Endpoint::Ip;
    let can = |kind: &ServerKind| server_binary::find(*kind).is_some_and(|binary| !needs_7 || binary.version.0 >= 7);
    for kind in ServerKind::ALL.into_iter().filter(can) {
        let password = ipv6.then(|| "s3cret".to_owned());
        let cluster =
            Cluster::start_with(ClusterOptions { endpoint, ipv6, password, ..ClusterOptions::new(kind, 2, 0) });
        let what = format!("{kind}, {endpoint:?}, IPv6 {ipv6}");
        conforms(&cluster, &what).await;
        redirections_are_followed(cluster, &what).await;
    }
}

#[tokio::test]
async fn nodes_that_name_their_host_are_found() {
    nodes_are_found(Endpoint::Hostname, false).await;
}

#[tokio::test]
async fn nodes_that_name_a_question_mark_are_found() {
    nodes_are_found(Endpoint::MissingHostname, false).await;
}

#[tokio::test]
async fn nodes_that_name_no_host_are_found() {
    nodes_are_found(Endpoint::Unknown, false).await;
}

#[tokio::test]
async fn nodes_on_ipv6_behind_a_password_are_found() {
    nodes_are_found(Endpoint::Ip, true).await;
}

#[tokio::test]
async fn a_cluster_of_one_node_that_does_not_know_its_address_is_found() {
    let _turn = TURN.lock().await;
    for kind in ServerKind::ALL.into_iter().filter(|kind| server_binary::find(*kind).is_some()) {
        let cluster = Cluster::start(kind, 1, 0);
        conforms(&cluster, &format!("{kind}, one node")).await;
    }
}

/// Every key has been charged as often as this; more checks meet no error.
async fn check_all(limiter: &Limiter, keys: &[String], charged: &mut u64) {
    let decisions = limiter.check_many(keys.iter().map(|key| (key, 1))).await.unwrap();
    *charged += 1;
    assert!(
        decisions.iter().all(|decision| !decision.degraded() && decision.remaining == 1000 - *charged),
        "{charged}"
    );
}

#[tokio::test]
async fn a_master_that_joins_is_used_and_one_that_leaves_is_let_go() {
    let _turn = TURN.lock().await;
    let mut cluster = Cluster::start(default_kind(), 3, 0);
    let client = one_seed(&cluster);
    let limiter = client.limiter("case", "1000/20000d").unwrap();
    let (keys, mut charged) = (keys(300), 0);
    check_all(&limiter, &keys, &mut charged).await;

    let joined = cluster.add_node();
    check_all(&limiter, &keys, &mut charged).await;
    // Four partitions.
    cluster.migrate_slots(0, joined, 0..=999);
    check_all(&limiter, &keys, &mut charged).await;
    assert!(cluster.node(joined).command::<u64, _>(&["DBSIZE"]) > 0);

    // The only seed gives all it has to the newcomer, and goes.
    for slots in cluster.slots_of(0) {
        cluster.migrate_slots(0, joined, slots);
    }
    check_all(&limiter, &keys, &mut charged).await;
    cluster.forget_node(0);
    cluster.node_mut(0).kill_hard();
    check_all(&limiter, &keys, &mut charged).await;
    eventually("masters that all answer", 5 * SECOND, async || client.ping().await.is_ok()).await;
    check_all(&limiter, &keys, &mut charged).await;
    assert_eq!(client.stats().degraded, 0);
}

#[tokio::test]
async fn a_seed_that_knows_few_slots_or_none_does_not_tell_the_others_what_they_serve() {
    let _turn = TURN.lock().await;
    let cluster = Cluster::start(default_kind(), 3, 0);
    let alone = Server::start_with(default_kind(), &["--cluster-enabled", "yes"]);
    for slots in [None, Some(["0", "1"])] {
        if let Some([first, second]) = slots {
            alone.command::<(), _>(&["CLUSTER", "ADDSLOTS", first, second]);
        }
        for _ in 0..10 {
            // The one that stands alone is the first to be asked.
            let others = cluster.url().replace("redis+cluster://", "");
            let url = format!("redis+cluster://127.0.0.1:{},{others}", alone.port());
            let limiter = client(&url, FailurePolicy::Raise).limiter("case", "1000/d").unwrap();
            let decisions = limiter.check_many(keys(60).iter().map(|key| (key, 1))).await;
            assert!(decisions.is_ok_and(|all| all.iter().all(|decision| !decision.degraded())), "{slots:?}");
        }
    }
}
