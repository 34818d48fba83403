//! What a client needs of the runtimes that poll it, and what it leaves behind.

use std::time::Duration;

use grifo::{Client, Limiter};
use grifo_tests::case::{Place, eventually};
use grifo_tests::{Mode, Proxy, Server};

const SECOND: Duration = Duration::from_secs(1);

fn with_defaults(url: &str) -> Limiter {
    Client::open(url).unwrap().limiter("case", "1000/20000d").unwrap()
}

async fn degraded(limiter: &Limiter) -> bool {
    limiter.check("k").await.unwrap().degraded()
}

async fn normal(limiter: &Limiter) {
    eventually("a decision of the store", 2 * SECOND, async || !degraded(limiter).await).await;
}

/// Runs a call on a runtime that is gone afterwards.
fn on_a_runtime_of_its_own<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

#[test]
fn a_client_outlives_the_runtime_that_first_polled_it() {
    let place = Place::redis();
    let client = place.client();
    let limiter = client.limiter("case", "10/20000d").unwrap();
    for used in 1..=5 {
        let decision = on_a_runtime_of_its_own(limiter.check("k")).unwrap();
        assert_eq!(decision.remaining, 10 - used);
        let acquired = on_a_runtime_of_its_own(limiter.acquire("other", 1, SECOND)).unwrap();
        assert_eq!(acquired.remaining, 10 - used);
        on_a_runtime_of_its_own(client.ping()).unwrap();
    }
}

#[test]
fn a_client_outlives_a_runtime_that_ended_while_it_connected() {
    let place = Place::redis();
    let proxy = Proxy::start(place.server().unwrap().addr());
    proxy.set(Mode::Stall);
    let limiter = with_defaults(&proxy.url());
    assert!(on_a_runtime_of_its_own(degraded(&limiter)));
    proxy.set(Mode::Forward);
    on_a_runtime_of_its_own(normal(&limiter));
    on_a_runtime_of_its_own(normal(&limiter));
}

#[test]
fn a_client_serves_several_runtimes_at_once() {
    let place = Place::redis();
    let limiter = place.limiter("1000/20000d");
    let runtime = || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    // None of them ends before all have had their answers: a runtime that ends takes what is under way with it.
    let runtimes: Vec<_> = (0..4).map(|_| runtime()).collect();
    std::thread::scope(|threads| {
        for runtime in &runtimes {
            threads.spawn(|| {
                for _ in 0..50 {
                    assert!(runtime.block_on(limiter.check("k")).unwrap().allowed);
                }
            });
        }
    });
    drop(runtimes);
    assert_eq!(on_a_runtime_of_its_own(limiter.peek("k")).unwrap().remaining, 800);
}

/// Connections that clients of ours have open.
fn connections(server: &Server) -> usize {
    let list: String = server.command(&["CLIENT", "LIST"]);
    list.lines().filter(|line| !line.contains("cmd=client")).count()
}

fn tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

#[tokio::test]
async fn a_client_that_is_dropped_leaves_no_connection_and_no_task() {
    let place = Place::redis();
    let server = place.server().unwrap();
    for close in [false, true] {
        let client = place.client();
        let limiter = client.limiter("case", "10/20000d").unwrap();
        assert!(limiter.acquire("k", 1, SECOND).await.unwrap().allowed);
        assert_eq!(connections(server), 1);
        assert!(tasks() > 0);
        if close {
            client.close();
        } else {
            drop((client, limiter));
        }
        eventually("no connection", 2 * SECOND, async || connections(server) == 0).await;
        eventually("no task", 2 * SECOND, async || tasks() == 0).await;
    }
}

#[tokio::test]
async fn a_client_that_is_dropped_while_it_connects_leaves_nothing() {
    let place = Place::redis();
    let proxy = Proxy::start(place.server().unwrap().addr());
    proxy.set(Mode::Stall);
    let limiter = with_defaults(&proxy.url());
    assert!(degraded(&limiter).await);
    assert!(tasks() > 0);
    drop(limiter);
    eventually("no task", SECOND / 2, async || tasks() == 0).await;
    proxy.set(Mode::Forward);
    eventually("no connection", 2 * SECOND, async || proxy.open() == 0).await;
}

#[tokio::test]
async fn a_client_that_is_dropped_after_timeouts_leaves_nothing() {
    let server = Server::start_default();
    let limiter = with_defaults(&server.url());
    normal(&limiter).await;
    server.stop();
    for _ in 0..10 {
        assert!(degraded(&limiter).await);
    }
    drop(limiter);
    eventually("no task", 2 * SECOND, async || tasks() == 0).await;
    server.cont();
    eventually("no connection", 2 * SECOND, async || connections(&server) == 0).await;
}

#[tokio::test]
async fn many_limiters_and_clones_share_one_connection() {
    let place = Place::redis();
    let server = place.server().unwrap();
    let client = place.client();
    assert_eq!(connections(server), 0, "building connects to nothing");
    let hit = |index: usize| {
        let client = client.clone();
        async move { client.limiter(format!("{index}"), "10/s").unwrap().check("k").await.unwrap().allowed }
    };
    let hits: Vec<_> = (0..50).map(|index| tokio::spawn(hit(index))).collect();
    for hit in hits {
        assert!(hit.await.unwrap());
    }
    assert_eq!(connections(server), 1);
}

#[test]
fn callers_of_one_key_go_on_after_the_runtime_of_those_before_them() {
    let server = Server::start_default();
    let limiter = with_defaults(&server.url());
    let first = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    first.block_on(normal(&limiter));
    server.stop();
    // Some are under way, others wait behind them, and nobody is left to take those along.
    for _ in 0..2 {
        for _ in 0..20 {
            let limiter = limiter.clone().timeout(30 * SECOND).unwrap();
            first.spawn(async move { limiter.check("k").await });
        }
        first.block_on(async { tokio::time::sleep(SECOND / 10).await });
    }
    first.shutdown_timeout(SECOND);
    server.cont();
    on_a_runtime_of_its_own(normal(&limiter));
}
