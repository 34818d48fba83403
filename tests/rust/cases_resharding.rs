//! Slots that move from one master to another while they are used.

use std::collections::{HashMap, HashSet};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use grifo::{Client, Decision, Error, ErrorKind, FailurePolicy, Limiter};
use grifo_tests::cluster::Cluster;
use grifo_tests::cluster_case::{TURN, client, default_kind, keys};
use tokio::task::JoinHandle;

const SECOND: Duration = Duration::from_secs(1);
/// Those that move, and how many partitions of ours are among them.
const SLOTS: RangeInclusive<u16> = 0..=999;
const PARTITIONS_MOVED: u64 = 4;
const KEYS: usize = 640;
const MANY: u64 = 1_000_000;
/// Callers of single keys, callers of many keys at once.
const CALLERS: [usize; 2] = [4, 2];
/// What the callers of many keys ask at once.
const AT_ONCE: usize = 40;

/// What callers were told about each key.
#[derive(Default)]
struct Told {
    admitted: HashMap<String, u64>,
    degraded: HashMap<String, Vec<ErrorKind>>,
    errors: Vec<Error>,
}

impl Told {
    fn add(&mut self, key: &str, decision: &Decision) {
        assert!(decision.allowed, "{key}: {decision:?}");
        match decision.reason {
            Some(reason) => self.degraded.entry(key.to_owned()).or_default().push(reason),
            None => *self.admitted.entry(key.to_owned()).or_default() += 1,
        }
    }

    fn merge(mut self, other: Self) -> Self {
        other.admitted.into_iter().for_each(|(key, count)| *self.admitted.entry(key).or_default() += count);
        other.degraded.into_iter().for_each(|(key, reasons)| self.degraded.entry(key).or_default().extend(reasons));
        self.errors.extend(other.errors);
        self
    }

    /// Why the store did not decide.
    fn degraded_of(&self, key: &str) -> &[ErrorKind] {
        self.degraded.get(key).map_or(&[], Vec::as_slice)
    }
}

/// Callers that go on until they are told to end.
struct Load {
    ends: Arc<AtomicBool>,
    callers: Vec<JoinHandle<Told>>,
}

impl Load {
    fn begin(limiter: &Limiter) -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let sizes = [(CALLERS[0], 1), (CALLERS[1], AT_ONCE)];
        let callers = sizes.into_iter().flat_map(|(count, at_once)| (0..count).map(move |_| at_once));
        let callers = callers.map(|at_once| tokio::spawn(call(limiter.clone(), at_once, Arc::clone(&ends)))).collect();
        Self { ends, callers }
    }

    async fn end(self) -> Told {
        self.ends.store(true, Ordering::Relaxed);
        let mut told = Told::default();
        for caller in self.callers {
            told = told.merge(caller.await.unwrap());
        }
        told
    }
}

/// Asks for all keys, some at a time, over and over.
async fn call(limiter: Limiter, at_once: usize, ends: Arc<AtomicBool>) -> Told {
    let (mut told, keys) = (Told::default(), keys(KEYS));
    // Not as fast as it can, which would be a test of the machine.
    let mut pace = tokio::time::interval(Duration::from_millis(1));
    pace.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    for part in keys.chunks(at_once).cycle() {
        if ends.load(Ordering::Relaxed) {
            break;
        }
        pace.tick().await;
        match limiter.check_many(part.iter().map(|key| (key, 1))).await {
            Ok(decisions) => part.iter().zip(decisions).for_each(|(key, decision)| told.add(key, &decision)),
            Err(error) => told.errors.push(error),
        }
    }
    told
}

/// How often clients were sent to another node.
fn redirections(cluster: &Cluster) -> u64 {
    let of_node = |node: &grifo_tests::Server| -> u64 {
        let info: String = node.command(&["INFO", "errorstats"]);
        let line = info.lines().find_map(|line| line.strip_prefix("errorstat_MOVED:count="));
        line.map_or(0, |count| count.trim().parse().unwrap())
    };
    cluster.nodes().iter().map(of_node).sum()
}

/// Moves slots to a node that knows no script at first, and again half-way.
async fn reshard(cluster: Cluster, from: usize, to: usize) -> Cluster {
    let work = move || {
        for part in [*SLOTS.start()..=499, 500..=*SLOTS.end()] {
            cluster.node(to).command::<(), _>(&["SCRIPT", "FLUSH"]);
            cluster.migrate_slots(from, to, part);
        }
        cluster
    };
    tokio::task::spawn_blocking(work).await.unwrap()
}

/// What a resharding under load came to.
struct Outcome {
    cluster: Cluster,
    told: Told,
    moved: HashSet<String>,
    redirections: u64,
}

/// Reshards a thousand slots under load; whatever happens, nothing is charged twice.
async fn reshard_under_load(client: &Client, cluster: Cluster, limits: &str, to: usize) -> Outcome {
    let limiter = client.limiter(limits, limits).unwrap();
    let keys = keys(KEYS);
    client.connect(10 * SECOND).await.unwrap();
    let patient = limiter.clone().timeout(10 * SECOND).unwrap();
    // One for each key, so that there is something to move.
    let first = patient.check_many(keys.iter().map(|key| (key, 1))).await.unwrap();
    assert!(first.iter().all(|decision| !decision.degraded()));
    let moved: HashSet<String> =
        keys.iter().filter(|key| SLOTS.contains(&cluster.slot_of_stored(key))).cloned().collect();
    assert!(moved.len() > 20, "{}", moved.len());
    let before = redirections(&cluster);
    let load = Load::begin(&limiter);
    let cluster = reshard(cluster, 1 - to, to).await;
    let told = load.end().await;
    assert!(told.errors.is_empty(), "{limits}: {:?}", told.errors);
    for key in &keys {
        let charged = MANY - patient.peek(key).await.unwrap().limits[0].remaining;
        let admitted = 1 + told.admitted.get(key).copied().unwrap_or(0);
        // What was degraded may have been charged.
        let most = admitted + told.degraded_of(key).len() as u64;
        assert!((admitted..=most).contains(&charged), "{key}: {charged} charged, {admitted} admitted, at most {most}");
    }
    Outcome { redirections: redirections(&cluster) - before, cluster, told, moved }
}

fn one_limit() -> String {
    format!("{MANY}/20000d")
}

fn two_limits() -> String {
    format!("{MANY}/20000d + fixed-window {MANY}/20000d")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cl_09_a_thousand_slots_move_under_load_without_an_error() {
    let _turn = TURN.lock().await;
    let mut cluster = Cluster::start(default_kind(), 3, 0);
    for (limits, to) in [(one_limit(), 1), (two_limits(), 0)] {
        let client = client(&cluster.url(), FailurePolicy::Raise);
        let outcome = reshard_under_load(&client, cluster, &limits, to).await;
        let (told, moved) = (outcome.told, outcome.moved.len());
        let calls: u64 = told.admitted.values().sum();
        println!("{limits}: {calls} admitted, {moved} keys moved, {} redirections", outcome.redirections);
        // Each caller may be on its way to each partition as it moves, and once more where news are slow.
        assert!(outcome.redirections <= 2 * CALLERS.iter().sum::<usize>() as u64 * PARTITIONS_MOVED, "{limits}");
        assert!(client.stats().reloads >= 2, "{limits}: {:?}", client.stats());
        cluster = outcome.cluster;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cl_09_with_defaults_a_moved_key_is_degraded_once_at_most() {
    let _turn = TURN.lock().await;
    let mut cluster = Cluster::start(default_kind(), 3, 0);
    for (limits, to) in [(one_limit(), 1), (two_limits(), 0)] {
        let client = Client::open(cluster.url()).unwrap();
        let outcome = reshard_under_load(&client, cluster, &limits, to).await;
        let (told, moved) = (outcome.told, outcome.moved);
        // A machine that is too busy for the deadline is so for all keys: those that did not move tell how often.
        let worst = |is_moved: bool| {
            let of_these = told.degraded.iter().filter(|(key, _)| moved.contains(*key) == is_moved);
            of_these.map(|(_, reasons)| reasons.len()).max().unwrap_or(0)
        };
        println!(
            "{limits}: {} keys moved, degraded {} times at most, others {}",
            moved.len(),
            worst(true),
            worst(false)
        );
        assert!(worst(true) <= worst(false) + 1, "{limits}: {:?}", told.degraded);
        for (key, reasons) in &told.degraded {
            let others: Vec<_> = reasons.iter().filter(|reason| **reason != ErrorKind::Timeout).collect();
            assert!(others.len() <= usize::from(moved.contains(key)), "{limits}: {key}: {others:?}");
        }
        cluster = outcome.cluster;
    }
}
