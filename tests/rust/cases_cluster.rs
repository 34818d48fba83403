//! The same promises on a cluster: routes, redirections, scripts of each node, and masters that change.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use grifo::{Client, ErrorKind, FailurePolicy, Limiter};
use grifo_tests::case::eventually;
use grifo_tests::cluster_case::{TURN, client, default_kind, degraded, hasty, keys, until_normal};
use grifo_tests::workers::{self, Work};
use grifo_tests::{Cluster, ClusterOptions, CommandStats, ServerKind, server_binary};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn cl_01_a_thousand_keys_of_every_algorithm_are_exact_from_eight_processes() {
    let _turn = TURN.blocking_lock();
    let cluster = Cluster::start(default_kind(), 3, 0);
    for limits in [
        "5/20000d",
        "sliding-window 5/20000d",
        "sliding-window-counter 5/20000d",
        "fixed-window 5/20000d",
        "5/20000d + sliding-window 4/20000d",
    ] {
        let work = Work {
            program: env!("CARGO_BIN_EXE_worker"),
            url: &cluster.url(),
            limits,
            keys: 1000,
            hits: 1,
            callers: 1,
            prefix: limits,
        };
        let counts = workers::run(8, &work);
        let limit = if limits.contains('+') { 4 } else { 5 };
        assert_eq!((counts.errors, counts.degraded), (0, 0), "{limits}");
        assert!(counts.by_key.iter().all(|allowed| *allowed == limit), "{limits}");
    }
}

#[tokio::test]
async fn cl_04_keys_are_spread_whatever_their_braces() {
    let _turn = TURN.lock().await;
    let cluster = Cluster::start(default_kind(), 3, 0);
    let limiter = client(&cluster.url(), FailurePolicy::Raise).limiter("case", "10/d").unwrap();
    for prefix in ["user:", "u{same}"] {
        let names: Vec<_> = (0..3000).map(|number| (format!("{prefix}{number}"), 1)).collect();
        let _ = limiter.check_many(names).await.unwrap();
        let sizes = cluster.dbsize_per_master();
        let total: u64 = sizes.values().sum();
        assert!(sizes.values().all(|size| (20..=50).contains(&(size * 100 / total))), "{prefix}: {sizes:?}");
    }
}

#[tokio::test]
async fn cl_04_each_master_of_three_has_its_share_within_five_percent() {
    let _turn = TURN.lock().await;
    let cluster = Cluster::start(default_kind(), 3, 0);
    let limiter = client(&cluster.url(), FailurePolicy::Raise).limiter("case", "10/d").unwrap();
    let names = keys(30_000);
    for part in names.chunks(3000) {
        let _ = limiter.check_many(part.iter().map(|name| (name, 1))).await.unwrap();
    }
    let sizes = cluster.dbsize_per_master();
    println!("{sizes:?}");
    assert!(sizes.values().sum::<u64>() >= 30_000);
    assert!(sizes.values().all(|size| (9500..=10_500).contains(size)), "{sizes:?}");
}

#[tokio::test]
async fn cl_05_masters_that_step_down_are_noticed() {
    let _turn = TURN.lock().await;
    let cluster = Cluster::start(default_kind(), 3, 3);
    let limiter = hasty(&cluster.url(), "1000/d");
    let keys = keys(300);
    until_normal(&limiter, &keys, 5 * SECOND).await;
    for replica in cluster.replicas().into_iter().take(3) {
        cluster.failover(replica);
        let took = until_normal(&limiter, &keys, 2 * SECOND).await;
        println!("normal {took:?} after a failover");
    }
}

#[tokio::test]
async fn cl_06_only_the_seed_is_named_and_dies() {
    let _turn = TURN.lock().await;
    let mut cluster = Cluster::start(default_kind(), 3, 3);
    let limiter = hasty(&cluster.seed_url(1), "1000/d");
    let keys = keys(300);
    until_normal(&limiter, &keys, 5 * SECOND).await;
    let _ = limiter.check_many(keys.iter().map(|key| (key, 1))).await.unwrap();
    let seed = cluster.masters()[0];
    let lost: HashSet<String> = {
        let owned = cluster.slots_of(seed);
        let stored = |key: &String| owned.iter().any(|range| range.contains(&cluster.slot_of_stored(key)));
        keys.iter().filter(|key| stored(key)).cloned().collect()
    };
    cluster.node_mut(seed).kill_hard();
    let failing = degraded(&limiter, &keys).await;
    assert!(failing.iter().all(|(key, _)| lost.contains(key)), "keys of other masters are not affected");
    let took = until_normal(&limiter, &keys, 5 * SECOND).await;
    println!("normal {took:?} after the seed died, of {} keys", lost.len());
}

/// Clients with the default deadline, which know who serves a key.
async fn with_defaults(cluster: &Cluster, key: &str) -> Vec<Limiter> {
    let mut limiters = Vec::new();
    for _ in 0..20 {
        let client = Client::open(cluster.url()).unwrap();
        client.connect(5 * SECOND).await.unwrap();
        limiters.push(client.limiter("case", "1000/d").unwrap());
        until_normal(&limiters[limiters.len() - 1], &[key.to_owned()], 5 * SECOND).await;
    }
    limiters
}

/// Most are told that the cluster is at fault, within the deadline; the others were too late on a busy machine.
async fn most_say_why(limiters: &[Limiter], key: &str, what: &str) {
    let (mut times, mut reasons) = (Vec::new(), Vec::new());
    for limiter in limiters {
        let started = Instant::now();
        reasons.push(limiter.check(key).await.unwrap().reason);
        times.push(started.elapsed());
    }
    times.sort_unstable();
    let (median, all) = (times[times.len() / 2], reasons.len());
    let say_why = reasons.iter().filter(|reason| **reason == Some(ErrorKind::Cluster)).count();
    println!("{what}: {median:?}, {:?} at most, {say_why} of {all} say why", times[all - 1]);
    // A busy machine takes its time.
    assert!(times[times.len() / 4] < Duration::from_millis(50), "{what}: {times:?}");
    assert!(say_why > all / 2, "{what}: {reasons:?}");
    assert!(
        reasons.iter().all(|reason| matches!(reason, Some(ErrorKind::Cluster | ErrorKind::Timeout))),
        "{reasons:?}"
    );
}

#[tokio::test]
async fn cl_12_a_slot_without_an_owner_degrades_only_its_keys() {
    let _turn = TURN.lock().await;
    let cluster = Cluster::start(default_kind(), 3, 0);
    let limiter = hasty(&cluster.url(), "1000/d");
    let keys = keys(60);
    until_normal(&limiter, &keys, 5 * SECOND).await;
    let _ = limiter.check_many(keys.iter().map(|key| (key, 1))).await.unwrap();
    let slot = cluster.slot_of_stored(&keys[0]);
    let others: Vec<String> = keys.iter().filter(|key| cluster.slot_of_stored(key) != slot).cloned().collect();
    assert!(others.len() > 40);
    let limiters = with_defaults(&cluster, &keys[0]).await;
    let owner = cluster.master_of_slot(slot).unwrap();
    cluster.del_slots(slot..=slot);
    most_say_why(&limiters, &keys[0], "who took it for served").await;
    most_say_why(&limiters, &keys[0], "who knows").await;
    until_normal(&limiter, &others, SECOND).await;
    cluster.add_slots(owner, slot..=slot);
    until_normal(&limiter, &keys, 2 * SECOND).await;
}

#[tokio::test]
async fn cl_12_a_cluster_that_is_down_for_one_slot_says_so_on_all_keys() {
    let _turn = TURN.lock().await;
    let cluster =
        Cluster::start_with(ClusterOptions { full_coverage: true, ..ClusterOptions::new(default_kind(), 3, 0) });
    let limiters = with_defaults(&cluster, "key").await;
    let _ = limiters[0].check_n("key", 1).await.unwrap();
    let slot = cluster.slot_of_stored("key");
    let another = (slot + 1) % 16_384;
    let owner = cluster.master_of_slot(another).unwrap();
    cluster.del_slots(another..=another);
    let is_down =
        |master: usize| cluster.node(master).command::<String, _>(&["CLUSTER", "INFO"]).contains("state:fail");
    eventually("a cluster that is down", 10 * SECOND, async || cluster.masters().into_iter().all(is_down)).await;
    most_say_why(&limiters, "key", "a cluster that is down").await;
    cluster.add_slots(owner, another..=another);
    until_normal(&limiters[0], &["key".to_owned()], 2 * SECOND).await;
}

#[tokio::test]
async fn cl_12_callers_of_a_slot_without_an_owner_do_not_storm_the_cluster() {
    let _turn = TURN.lock().await;
    let cluster = Cluster::start(default_kind(), 3, 0);
    let limiter = client(&cluster.url(), FailurePolicy::Open).limiter("case", "1000/d").unwrap();
    let keys = keys(60);
    until_normal(&limiter, &keys, 5 * SECOND).await;
    assert!(limiter.check(&keys[0]).await.unwrap().allowed);
    let slot = cluster.slot_of_stored(&keys[0]);
    cluster.del_slots(slot..=slot);
    let _ = limiter.check(&keys[0]).await.unwrap();
    let asked = || -> u64 {
        let of = |master: usize| CommandStats::read(cluster.node(master)).calls("cluster|slots");
        cluster.masters().into_iter().map(of).sum()
    };
    let before = asked();
    let started = Instant::now();
    let mut calls = 0;
    while started.elapsed() < SECOND {
        assert_eq!(limiter.check(&keys[0]).await.unwrap().reason, Some(ErrorKind::Cluster));
        calls += 1;
    }
    let asked = asked() - before;
    // Every tenth of a second, of the three masters.
    assert!(asked <= 45, "{asked} times for {calls} calls");
}

#[tokio::test]
async fn sc_04_each_node_may_forget_its_scripts() {
    let _turn = TURN.lock().await;
    let cluster = Cluster::start(default_kind(), 3, 0);
    let client = client(&cluster.url(), FailurePolicy::Raise);
    let limiter = client.limiter("case", "1000/20000d").unwrap();
    let keys = keys(300);
    for _ in 0..3 {
        cluster.flush_scripts();
        let decisions = limiter.check_many(keys.iter().map(|key| (key, 1))).await.unwrap();
        assert!(decisions.iter().all(|decision| decision.allowed && !decision.degraded()));
    }
    for key in &keys {
        assert_eq!(limiter.peek(key).await.unwrap().remaining, 997, "{key}");
    }
    assert!(client.stats().reloads >= 9, "{:?}", client.stats());
}

#[tokio::test]
async fn ping_warns_of_a_cluster_that_one_dead_master_stops() {
    let _turn = TURN.lock().await;
    for kind in ServerKind::ALL.into_iter().filter(|kind| server_binary::find(*kind).is_some()) {
        let cluster = Cluster::start(kind, 2, 0);
        let poor = cluster.url().replace("://", "://poor:pw@");
        let configure = |node: usize, words: &[&str]| cluster.node(node).command::<(), _>(words);
        let warnings = async |url: &str| client(url, FailurePolicy::Raise).ping().await.unwrap().warnings;
        assert_eq!(warnings(&cluster.url()).await, [""; 0], "{kind}");
        // One node that says so is enough.
        configure(1, &["CONFIG", "SET", "cluster-require-full-coverage", "yes"]);
        let [warning] = warnings(&cluster.url()).await.try_into().unwrap();
        assert!(warning.contains("CONFIG SET cluster-require-full-coverage no"), "{kind}: {warning}");
        for node in 0..2 {
            configure(node, &["ACL", "SETUSER", "poor", "reset", "on", ">pw", "~*", "+@all", "-config"]);
        }
        let [unknown] = warnings(&poor).await.try_into().unwrap();
        assert!(unknown.contains("is not known"), "{kind}: {unknown}");
        for node in 0..2 {
            configure(node, &["ACL", "SETUSER", "poor", "+config|get"]);
        }
        assert_eq!(warnings(&poor).await, [warning], "{kind}");
    }
}
