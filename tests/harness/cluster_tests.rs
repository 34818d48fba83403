use std::time::Instant;

use super::*;
use crate::cluster_options::Endpoint;
use crate::server_binary::installed;

fn default_kind() -> ServerKind {
    installed()[0].kind
}

fn get(cluster: &Cluster, node: usize, key: &str) -> RedisResult<Option<String>> {
    cluster.node(node).try_command(&["GET", key])
}

fn error(cluster: &Cluster, node: usize, key: &str) -> String {
    get(cluster, node, key).unwrap_err().to_string().to_lowercase()
}

fn eventually(cluster: &Cluster, check: impl Fn() -> bool) {
    wait::until("what the test expects", || cluster.logs(), || check().then_some(()).ok_or_else(String::new));
}

/// Sets keys of one slot on its owner.
fn fill(cluster: &Cluster, slot_key: &str, count: usize) -> (u16, usize, Vec<String>) {
    let keys: Vec<_> = (0..count).map(|i| format!("{{{slot_key}}}:{i}")).collect();
    let slot = cluster.slot_of_key(slot_key);
    let owner = cluster.master_of_slot(slot).unwrap();
    for key in &keys {
        cluster.node(owner).command::<(), _>(&["SET", key, "v"]);
    }
    (slot, owner, keys)
}

#[test]
fn masters_share_the_slots_and_replicas_follow() {
    let mut cluster = Cluster::start(default_kind(), 3, 1);
    assert_eq!((cluster.masters(), cluster.replicas()), (vec![0, 1, 2], vec![3, 4, 5]));
    assert_eq!((cluster.replicas_of(1), cluster.nodes().len()), (vec![4], 6));
    assert_eq!(cluster.slots_of(0), [0..=5460]);
    assert_eq!((cluster.master_of_slot(0), cluster.master_of_slot(SLOTS - 1)), (Some(0), Some(2)));
    let (_, owner, keys) = fill(&cluster, "a", 20);
    assert_eq!(cluster.dbsize_per_master()[&owner], 20);

    cluster.failover(owner + 3);
    assert!(cluster.masters().contains(&(owner + 3)) && cluster.replicas_of(owner + 3) == [owner]);

    cluster.node_mut(owner + 3).kill_hard();
    cluster.wait_promoted(owner);
    assert_eq!(get(&cluster, owner, &keys[0]).unwrap().as_deref(), Some("v"));
    cluster.node_mut(owner + 3).restart();
    eventually(&cluster, || cluster.replicas_of(owner) == [owner + 3]);
    cluster.wait_ready();
}

#[test]
fn a_frozen_node_is_not_waited_for() {
    let cluster = Cluster::start(default_kind(), 3, 0);
    cluster.node(1).stop();
    let begin = Instant::now();
    assert_eq!((cluster.masters(), cluster.master_of_slot(8000)), (vec![0, 2], None));
    assert!(begin.elapsed() < Duration::from_secs(5));
    cluster.node(1).cont();
    cluster.wait_ready();
    assert_eq!(cluster.masters(), [0, 1, 2]);
}

#[test]
fn slots_move_while_they_are_served() {
    let cluster = Cluster::start(default_kind(), 2, 1);
    let (slot, from, keys) = fill(&cluster, "a", 250);
    let to = 1 - from;
    cluster.begin_migration(slot, from, to);
    cluster.migrate_keys(from, to, &keys[..1]);
    assert!(error(&cluster, from, &keys[0]).contains("ask"));
    assert!(get(&cluster, from, &keys[1]).unwrap().is_some());
    assert!(error(&cluster, to, &keys[0]).contains("moved"));
    cluster.finish_migration(slot, from, to);
    assert_eq!((cluster.master_of_slot(slot), cluster.dbsize_per_master()[&to]), (Some(to), 250));
    assert!(error(&cluster, from, &keys[0]).contains("moved"));

    cluster.begin_migration(slot, to, from);
    cluster.cancel_migration(slot, to, from);
    assert!(get(&cluster, to, &keys[0]).unwrap().is_some());
    cluster.migrate_slots(to, from, slot..=slot);
    let first = *cluster.slots_of(0)[0].start();
    cluster.migrate_slots(0, 1, first..=first + 299);
    assert_eq!(cluster.master_of_slot(first + 299), Some(1));
}

#[test]
fn slots_can_be_without_owner() {
    std::thread::scope(|scope| {
        scope.spawn(|| play_slots_without_owner(false));
        scope.spawn(|| play_slots_without_owner(true));
    });
}

fn play_slots_without_owner(full_coverage: bool) {
    let options = ClusterOptions { full_coverage, ..ClusterOptions::new(default_kind(), 2, 0) };
    let cluster = Cluster::start_with(options);
    let (slot, owner, keys) = fill(&cluster, "a", 1);
    cluster.del_slots(slot..=slot + 9);
    assert_eq!(cluster.master_of_slot(slot), None);
    let state = if full_coverage { "cluster_state:fail" } else { "cluster_state:ok" };
    eventually(&cluster, || error(&cluster, owner, &keys[0]).contains("clusterdown"));
    eventually(&cluster, || cluster.node(owner).command::<String, _>(&["CLUSTER", "INFO"]).contains(state));
    cluster.add_slots(1 - owner, slot..=slot + 9);
    assert_eq!(cluster.master_of_slot(slot + 9), Some(1 - owner));
}

#[test]
fn nodes_join_and_leave() {
    let mut cluster = Cluster::start(default_kind(), 1, 0);
    assert_eq!(cluster.url(), cluster.seed_url(1));
    let (slot, _, keys) = fill(&cluster, "a", 3);
    let new = cluster.add_node();
    assert!(cluster.url().ends_with(&format!(",127.0.0.1:{}", cluster.node(new).port())));
    cluster.migrate_slots(0, new, slot..=slot + 99);
    assert!(get(&cluster, new, &keys[2]).unwrap().is_some());
    cluster.migrate_slots(new, 0, slot..=slot + 99);
    cluster.forget_node(new);
    assert_eq!((cluster.url(), cluster.view_of(0).len()), (cluster.seed_url(1), 1));
}

/// How the first of two masters redirects to the second.
fn redirection(options: ClusterOptions) -> (String, String) {
    let cluster = Cluster::start_with(options);
    let is_elsewhere = |key: &String| cluster.master_of_slot(cluster.slot_of_key(key)) == Some(1);
    let key = (0..).map(|i| i.to_string()).find(is_elsewhere).unwrap();
    (error(&cluster, 0, &key), cluster.url())
}

#[test]
fn nodes_name_themselves_as_the_options_say() {
    let base = || ClusterOptions::new(default_kind(), 2, 0);
    let expected = [(Endpoint::Hostname, " localhost:"), (Endpoint::MissingHostname, " ?:"), (Endpoint::Unknown, " :")];
    let know_names = installed()[0].version.0 >= 7;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let password = Some("secret".to_owned());
            let (moved, url) = redirection(ClusterOptions { ipv6: true, password, ..base() });
            assert!(moved.contains("::1:") && url.starts_with("redis+cluster://:secret@[::1]:"), "{moved} {url}");
        });
        for (endpoint, address) in expected.into_iter().filter(|_| know_names) {
            scope.spawn(move || {
                let (moved, _) = redirection(ClusterOptions { endpoint, ..base() });
                assert!(moved.contains(address), "{endpoint:?}: {moved}");
            });
        }
    });
}

#[test]
fn replicas_join_and_scripts_are_forgotten_everywhere() {
    let mut cluster = Cluster::start(default_kind(), 1, 0);
    let replica = cluster.add_replica(0);
    assert_eq!(cluster.replicas_of(0), [replica]);
    let load = ["SCRIPT", "LOAD", "return 1"];
    let sha: Vec<String> = cluster.nodes().iter().map(|node| node.command(&load)).collect();
    cluster.flush_scripts();
    for node in cluster.nodes() {
        assert_eq!(node.command::<Vec<u8>, _>(&["SCRIPT", "EXISTS", &sha[0]]), [0]);
    }
}
