//! CL-02 on a cluster: what each master is asked, command by command.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use grifo::{Algorithm, Client, Decision, Error, FailurePolicy, Limiter, Source};
use grifo_tests::case::of_each_algorithm;
use grifo_tests::cluster::Cluster;
use grifo_tests::cluster_case::{TURN, client, default_kind};
use grifo_tests::declared::{assert_declared, calls, keys_of};
use grifo_tests::{Monitor, MonitorLine};

const KEYS: usize = 12;
const SET: &str = "token-bucket 10/20000d + sliding-window 11/20000d + fixed-window 12/20000d";
const SAME_ALGORITHM: &str = "sliding-window-counter 10/20000d + sliding-window-counter 10/30000d";

fn each_kind_of_limits() -> Vec<String> {
    of_each_algorithm("10/20000d").into_iter().chain([SET.to_owned(), SAME_ALGORITHM.to_owned()]).collect()
}

/// What each master ran while a future was awaited.
async fn recorded<T>(cluster: &Cluster, work: impl Future<Output = T>) -> (T, Vec<Vec<MonitorLine>>) {
    let monitors: Vec<_> = cluster.nodes().iter().map(Monitor::start).collect();
    let value = work.await;
    let mut lines: Vec<_> = monitors.into_iter().map(Monitor::finish).collect();
    lines.iter_mut().for_each(|lines| lines.retain(|line| !is_of_the_record(line)));
    (value, lines)
}

/// The record of partitions is read beside a call, once in a long while.
fn is_of_the_record(line: &MonitorLine) -> bool {
    line.args.iter().any(|arg| String::from_utf8_lossy(arg).ends_with("}:1helper:partitions"))
}

/// The part between the braces.
fn tag_of(stored: &[u8]) -> Vec<u8> {
    stored.split(|byte| matches!(byte, b'{' | b'}')).nth(1).expect("a tag").to_vec()
}

/// Declared keys of each call are those that it touches, and all of one slot. How many calls there were.
fn assert_legal(lines: &[Vec<MonitorLine>], what: &str) -> usize {
    lines.iter().for_each(|lines| assert_declared(lines, what));
    let calls: Vec<_> = lines.iter().flat_map(|lines| calls(lines)).collect();
    for call in &calls {
        let tags: HashSet<_> = keys_of(call).iter().map(|key| tag_of(key)).collect();
        assert_eq!(tags.len(), 1, "{what}: keys of several slots: {call:?}");
    }
    calls.len()
}

/// In the order in which they are run on each key, and what each leaves of ten.
const OPERATIONS: [(&str, u64); 9] = [
    ("check", 9),
    ("check of 2", 7),
    ("denied", 7),
    ("check of 0", 7),
    ("peek", 7),
    ("acquire", 6),
    ("refund", 8),
    ("refund of 0", 8),
    ("reset", 10),
];

async fn run(limiter: &Limiter, operation: &str, key: &str) -> Result<Decision, Error> {
    match operation {
        "check" => limiter.check(key).await,
        "check of 2" => limiter.check_n(key, 2).await,
        "denied" => limiter.check_n(key, 9).await,
        "check of 0" => limiter.check_n(key, 0).await,
        "peek" => limiter.peek(key).await,
        "acquire" => limiter.acquire(key, 1, Duration::from_secs(1)).await,
        "refund" => limiter.refund(key, 2).await,
        "refund of 0" => limiter.refund(key, 0).await,
        _ => limiter.reset(key).await,
    }
}

/// A cluster, and a client that has loaded its scripts everywhere.
async fn connected() -> (Cluster, Client) {
    let cluster = Cluster::start(default_kind(), 3, 0);
    let client = client(&cluster.url(), FailurePolicy::Raise);
    client.connect(Duration::from_secs(5)).await.unwrap();
    (cluster, client)
}

#[tokio::test]
async fn cl_02_every_operation_is_one_round_trip_that_declares_its_keys() {
    let _turn = TURN.lock().await;
    let (cluster, client) = connected().await;
    for limits in each_kind_of_limits() {
        let limiter = client.limiter("case", &*limits).unwrap();
        for (operation, left) in OPERATIONS {
            let what = format!("{limits}, {operation}");
            let on_each_key = async {
                for number in 0..KEYS {
                    let decision = run(&limiter, operation, &format!("key {number} {{tag}}")).await.unwrap();
                    let least = decision.limits.iter().map(|limit| limit.remaining).min();
                    assert_eq!((decision.source, least), (Source::Store, Some(left)), "{what}");
                }
            };
            let ((), lines) = recorded(&cluster, on_each_key).await;
            assert_eq!(assert_legal(&lines, &what), KEYS, "{what}");
            assert!(lines.iter().all(|lines| !lines.is_empty()), "{what}: every master has keys");
        }
    }
}

/// One for each partition, unless it has so many keys that one would hold up the server.
fn calls_for(limiter: &Limiter, keys: &HashSet<&Vec<u8>>) -> usize {
    let limits = limiter.limits().as_slice();
    let is_bucket = limits.len() == 1 && limits[0].algorithm() == Algorithm::TokenBucket;
    let most = if is_bucket { 48 } else { 16 / limits.len() };
    let mut entries: HashMap<_, usize> = HashMap::new();
    keys.iter().for_each(|key| *entries.entry(tag_of(key)).or_default() += 1);
    entries.values().map(|keys| (keys / limits.len()).div_ceil(most)).sum()
}

#[tokio::test]
async fn cl_02_a_thousand_keys_take_a_call_for_each_partition() {
    let _turn = TURN.lock().await;
    let (cluster, client) = connected().await;
    for limits in each_kind_of_limits() {
        let limiter = client.limiter("case", &*limits).unwrap();
        let keys = (0..1000).map(|number| (format!("key {number} {{tag}}"), 1 + number % 3));
        let (decisions, lines) = recorded(&cluster, limiter.check_many(keys)).await;
        assert!(decisions.unwrap().iter().all(|decision| decision.allowed && !decision.degraded()), "{limits}");
        let count = assert_legal(&lines, &limits);
        let calls = lines.iter().flat_map(|lines| calls(lines));
        let declared: HashSet<_> = calls.flat_map(keys_of).collect();
        let tags: HashSet<_> = declared.iter().map(|key| tag_of(key)).collect();
        assert_eq!(declared.len(), 1000 * limiter.limits().as_slice().len(), "{limits}");
        assert_eq!(tags.len(), 64, "{limits}");
        assert_eq!(count, calls_for(&limiter, &declared), "{limits}");
    }
}
