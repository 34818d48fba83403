//! Nodes of a cluster under every kind of address, and nodes that join and leave.

use std::time::{Duration, Instant};

use grifo::{Client, FailurePolicy, Limiter};
use grifo_tests::case::{START, check_at, eventually, hits_at, of_each_algorithm, peek_at, refund_at};
use grifo_tests::cluster::Cluster;
use grifo_tests::cluster_case::{TURN, client, default_kind, degraded, hasty, keys, until_normal};
use grifo_tests::{ClusterOptions, CommandStats, Endpoint, Server, ServerKind, server_binary};

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

/// Keys that a node serves, each charged once: only what is stored tells where it is.
async fn keys_of(cluster: &Cluster, index: usize) -> Vec<String> {
    let scout = client(&cluster.url(), FailurePolicy::Raise).limiter("case", "1000/d").unwrap();
    let keys = keys(100);
    let _ = scout.check_many(keys.iter().map(|key| (key, 1))).await.unwrap();
    let owned = cluster.slots_of(index);
    let is_owned = |key: &String| owned.iter().any(|range| range.contains(&cluster.slot_of_stored(key)));
    keys.into_iter().filter(is_owned).collect()
}

#[tokio::test]
async fn a_master_that_the_cluster_has_cut_off_is_not_believed_alone() {
    let _turn = TURN.lock().await;
    let options = ClusterOptions { full_coverage: true, ..ClusterOptions::new(default_kind(), 3, 0) };
    let mut cluster = Cluster::start_with(options);
    let its_keys = keys_of(&cluster, 0).await;
    let slots = cluster.slots_of(0);
    // The master is the only seed of the one, and one of several of the other. Both are connected to it alone.
    let clients = [cluster.seed_url(1), cluster.url()].map(|url| client(&url, FailurePolicy::Open));
    let limiters = clients.each_ref().map(|client| client.limiter("case", "1000/d").unwrap());
    for limiter in &limiters {
        until_normal(limiter, &its_keys, 5 * SECOND).await;
    }
    cluster.cut_off(0);
    let asked = || [1, 2].map(|other| CommandStats::read(cluster.node(other)).calls("cluster|slots"));
    let (before, started) = (asked(), Instant::now());
    while started.elapsed() < 2 * SECOND {
        for limiter in &limiters {
            assert_eq!(degraded(limiter, &its_keys).await.len(), its_keys.len(), "its cluster is down");
        }
    }
    // Each client asks them once a second, and at the start perhaps once more.
    let (most, after) = (2 * (started.elapsed().as_secs() + 3), asked());
    assert!((0..2).all(|other| after[other] > before[other] && after[other] - before[other] <= most), "{after:?}");
    for range in slots {
        cluster.add_slots(1, range);
    }
    for limiter in &limiters {
        let took = until_normal(limiter, &its_keys, 3 * SECOND).await;
        println!("normal {took:?} after another took its slots");
    }
    for (limiter, key) in limiters.iter().zip(&its_keys) {
        assert_eq!(limiter.check(key).await.unwrap().remaining, 999, "charged where it never was before");
    }
    // Each connecting asks anew who serves what.
    for (client, limiter) in clients.iter().zip(&limiters) {
        for _ in 0..20 {
            client.connect(5 * SECOND).await.unwrap();
            assert_eq!(degraded(limiter, &keys(100)).await, []);
        }
    }
}

#[tokio::test]
async fn a_master_that_says_that_the_cluster_is_down_is_not_believed_alone() {
    let _turn = TURN.lock().await;
    let mut cluster = Cluster::start(default_kind(), 2, 0);
    let its_keys = keys_of(&cluster, 0).await;
    let other = Server::start_with(default_kind(), &["--cluster-enabled", "yes", "--cluster-node-timeout", "1000"]);
    let url = format!("{},127.0.0.1:{}", cluster.seed_url(1), other.port());
    let limiter = client(&url, FailurePolicy::Open).limiter("case", "1000/d").unwrap();
    until_normal(&limiter, &its_keys, 5 * SECOND).await;

    // Without the majority it serves nothing, and goes on telling of all slots what it knew last.
    cluster.node_mut(1).kill_hard();
    let state_of = |server: &Server| server.command::<String, _>(&["CLUSTER", "INFO"]);
    eventually("a minority", 10 * SECOND, async || state_of(cluster.node(0)).contains("state:fail")).await;
    assert_eq!(degraded(&limiter, &its_keys).await.len(), its_keys.len());
    let slots: Vec<String> = (0..16_384).map(|slot| slot.to_string()).collect();
    let words = ["CLUSTER", "ADDSLOTS"].into_iter().chain(slots.iter().map(String::as_str));
    other.command::<(), _>(&words.collect::<Vec<_>>());
    eventually("who serves all", 10 * SECOND, async || state_of(&other).contains("state:ok")).await;
    let took = until_normal(&limiter, &keys(100), 3 * SECOND).await;
    println!("normal {took:?} after another served all slots");
}

#[tokio::test]
async fn the_only_seed_dies_before_any_other_master_was_asked() {
    let _turn = TURN.lock().await;
    let mut cluster = Cluster::start(default_kind(), 3, 1);
    let its_keys = keys_of(&cluster, 0).await;
    let replica = cluster.replicas_of(0)[0];
    let limiter = hasty(&cluster.seed_url(1), "1000/d");
    until_normal(&limiter, &its_keys, 5 * SECOND).await;
    cluster.node_mut(0).kill_hard();
    cluster.wait_promoted(replica);
    let took = until_normal(&limiter, &its_keys, 3 * SECOND).await;
    println!("normal {took:?} after its replica was promoted");
}
