//! Calls that go out together: each caller gets the answer to its own, whoever goes away meanwhile.

use std::time::{Duration, Instant};

use grifo::{Client, ErrorKind, Limiter, Source};
use grifo_tests::case::{of_each_algorithm, patient};
use grifo_tests::{Cluster, CommandStats, Mode, Proxy, Server, server_binary};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Who goes away within two milliseconds, and is followed by one who wants an answer.
async fn gone_and_followed(client: Client, worker: usize, rounds: usize) {
    let hasty = client.limiter("hasty", "1000/20000d").unwrap();
    let mine = client.limiter("mine", "5/20000d").unwrap();
    for round in 0..rounds {
        let patience = Duration::from_micros(fastrand::u64(..2000));
        let gone = timeout(patience, hasty.check_n(format!("key {}", fastrand::u8(..10)), 1)).await;
        if let Ok(decision) = gone {
            assert_eq!(decision.unwrap().limit, 1000);
        }
        let decision = mine.check(format!("worker {worker}, {}", round / 5)).await.unwrap();
        let told = (decision.allowed, decision.limit, decision.remaining, decision.source);
        assert_eq!(told, (true, 5, 4 - round as u64 % 5, Source::Store), "worker {worker}, round {round}");
    }
}

async fn cancelled_callers_disturb_nobody(client: Client) {
    const WORKERS: usize = 50;
    const ROUNDS: usize = 20;
    let mut workers = JoinSet::new();
    for worker in 0..WORKERS {
        workers.spawn(gone_and_followed(client.clone(), worker, ROUNDS));
    }
    while let Some(worker) = workers.join_next().await {
        worker.unwrap();
    }
    let hasty = client.limiter("hasty", "1000/20000d").unwrap();
    let mut taken = 0;
    for key in 0..10 {
        taken += 1000 - hasty.peek(format!("key {key}")).await.unwrap().remaining;
    }
    assert!(taken <= (WORKERS * ROUNDS) as u64, "{taken}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn bd_07_a_thousand_cancelled_callers_disturb_nobody() {
    let server = Server::start_default();
    let proxy = Proxy::start(server.addr());
    let client = patient(&proxy.url()).build().unwrap();
    client.connect(Duration::from_secs(5)).await.unwrap();
    proxy.set(Mode::Delay(Duration::from_millis(2)));
    cancelled_callers_disturb_nobody(client).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn bd_07_a_thousand_cancelled_callers_disturb_nobody_on_a_cluster() {
    let cluster = Cluster::start(server_binary::installed()[0].kind, 3, 0);
    let client = patient(&cluster.url()).build().unwrap();
    client.connect(Duration::from_secs(5)).await.unwrap();
    cancelled_callers_disturb_nobody(client).await;
}

/// What callers who ask at once are told: of each cost, what is left after those that passed.
async fn crowd(limiter: &Limiter, key: &str, costs: impl Iterator<Item = u64>) -> Vec<(bool, u64, u64)> {
    let ask = |limiter: Limiter, key: String, cost| async move {
        let decision = limiter.check_n(key, cost).await.unwrap();
        assert_eq!(decision.source, Source::Store);
        assert_eq!(decision.retry_after == Some(Duration::ZERO), decision.allowed, "{decision:?}");
        (decision.allowed, cost, decision.remaining)
    };
    let mut callers = JoinSet::new();
    for cost in costs {
        callers.spawn(ask(limiter.clone(), key.to_owned(), cost));
    }
    callers.join_all().await
}

async fn a_crowd_is_answered_one_by_one(client: &Client) {
    for limits in of_each_algorithm("300/20000d") {
        for limits in [limits.clone(), format!("{limits} + fixed-window 1000/30000d")] {
            let limiter = client.limiter(&limits, &*limits).unwrap();
            let told = crowd(&limiter, "k", (0..500).map(|_| 1)).await;
            let mut left: Vec<u64> = told.iter().filter(|told| told.0).map(|told| told.2).collect();
            left.sort_unstable();
            assert_eq!(left, (0..300).collect::<Vec<_>>(), "{limits}: each is told what was left after itself");
            assert!(told.iter().filter(|told| !told.0).all(|told| told.2 == 0), "{limits}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_crowd_at_one_key_is_answered_as_if_one_came_after_the_other() {
    let server = Server::start_default();
    let client = patient(&server.url()).build().unwrap();
    client.connect(Duration::from_secs(5)).await.unwrap();
    CommandStats::reset(&server);
    a_crowd_is_answered_one_by_one(&client).await;
    let calls = CommandStats::read(&server).calls("evalsha");
    assert!(calls < 8 * 250, "{calls} calls for 4,000 decisions");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_crowd_at_one_key_of_a_cluster_is_answered_as_if_one_came_after_the_other() {
    let cluster = Cluster::start(server_binary::installed()[0].kind, 3, 0);
    let client = patient(&cluster.url()).build().unwrap();
    a_crowd_is_answered_one_by_one(&client).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_crowd_of_different_costs_takes_exactly_what_there_is() {
    let server = Server::start_default();
    let client = patient(&server.url()).build().unwrap();
    for limits in of_each_algorithm("1000/20000d") {
        let limiter = client.limiter(&limits, &*limits).unwrap();
        let told = crowd(&limiter, "k", (0..600).map(|number| number % 5)).await;
        let taken: u64 = told.iter().filter(|told| told.0).map(|told| told.1).sum();
        let mut left: Vec<u64> = told.iter().filter(|told| told.0 && told.1 > 0).map(|told| told.2).collect();
        left.sort_unstable();
        left.dedup();
        assert_eq!(
            left.len(),
            told.iter().filter(|told| told.0 && told.1 > 0).count(),
            "{limits}: no two see the same"
        );
        assert_eq!(limiter.peek("k").await.unwrap().remaining, 1000 - taken, "{limits}");
        assert!(told.iter().all(|told| told.0 || told.1 > 1000 - taken || told.1 > told.2), "{limits}");
        assert!(taken > 990, "{limits}: {taken}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn who_gave_up_waiting_is_not_sent_later() {
    let server = Server::start_default();
    let client = patient(&server.url()).timeout(Duration::from_millis(100)).build().unwrap();
    client.connect(Duration::from_secs(5)).await.unwrap();
    let limiter = client.limiter("case", "1000/20000d").unwrap();
    server.stop();
    let mut callers = JoinSet::new();
    for number in 0..500 {
        let limiter = limiter.clone();
        callers.spawn(async move { limiter.check(format!("key {number}")).await.unwrap_err().kind() });
    }
    assert!(callers.join_all().await.into_iter().all(|kind| kind == ErrorKind::Timeout));
    server.cont();
    let limiter = limiter.timeout(Duration::from_secs(5)).unwrap();
    assert_eq!(limiter.check("later").await.unwrap().remaining, 999);
    let mut charged = 0;
    for number in 0..500 {
        charged += 1000 - limiter.peek(format!("key {number}")).await.unwrap().remaining;
    }
    // Those that were in flight: a caller alone, and a call with each of two flights.
    assert!(charged <= 1 + 2 * 48, "{charged}");
}

/// The 99th percentile of what a few callers with keys of their own wait, while many others call without a pause.
async fn wait_of_others(client: &Client, hot: bool) -> Duration {
    const OTHERS: usize = 490;
    let limiter = client.limiter("case", "864000000/d").unwrap();
    let end = Instant::now() + Duration::from_secs(2);
    let mut load = JoinSet::new();
    for number in 0..OTHERS {
        let limiter = limiter.clone();
        load.spawn(async move {
            let mut round = 0;
            while Instant::now() < end {
                let key = if hot { "hot".to_owned() } else { format!("{number} {}", round % 200) };
                assert!(limiter.check(key).await.unwrap().allowed);
                round += 1;
            }
        });
    }
    let mut others = JoinSet::new();
    for number in 0..10 {
        let limiter = limiter.clone();
        others.spawn(async move {
            let mut waits = Vec::new();
            while Instant::now() < end {
                let started = Instant::now();
                assert!(limiter.check(format!("other {number} {}", waits.len() % 200)).await.unwrap().allowed);
                waits.push(started.elapsed());
            }
            waits
        });
    }
    load.join_all().await;
    let mut waits: Vec<Duration> = others.join_all().await.into_iter().flatten().collect();
    waits.sort_unstable();
    waits[waits.len() * 99 / 100]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hot_key_does_not_keep_others_waiting() {
    let server = Server::start_default();
    let client = patient(&server.url()).build().unwrap();
    client.connect(Duration::from_secs(5)).await.unwrap();
    let beside_distinct_keys = wait_of_others(&client, false).await;
    let beside_a_hot_key = wait_of_others(&client, true).await;
    println!("p99 of other keys: {beside_distinct_keys:?} beside distinct keys, {beside_a_hot_key:?} beside a hot key");
    assert!(beside_a_hot_key <= 3 * beside_distinct_keys);
}
