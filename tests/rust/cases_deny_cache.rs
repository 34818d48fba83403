//! Denials that are remembered: DG-09 and its kind.

use std::time::{Duration, Instant};

use grifo::{Client, ClientBuilder, FailurePolicy, Limiter, Source};
use grifo_tests::case::{of_each_algorithm, patient};
use grifo_tests::{CommandStats, Server};

const PATIENCE: Duration = Duration::from_secs(5);

/// A client that remembers denials as it does by default, but is patient.
fn builder(server: &Server) -> ClientBuilder {
    Client::builder(server.url()).timeout(PATIENCE).on_failure(FailurePolicy::Raise)
}

fn client(server: &Server) -> Client {
    builder(server).build().unwrap()
}

/// The source of the denial of a call.
async fn denied(limiter: &Limiter, key: &str, cost: u64) -> Source {
    let decision = limiter.check_n(key, cost).await.unwrap();
    assert!(!decision.allowed, "{decision:?}");
    assert!(decision.retry_after > Some(Duration::ZERO) && decision.denied_by == Some(0), "{decision:?}");
    decision.source
}

fn calls(server: &Server) -> u64 {
    CommandStats::read(server).calls("evalsha")
}

#[tokio::test]
async fn a_denial_is_repeated_without_the_store() {
    let server = Server::start_default();
    let client = client(&server);
    for limits in of_each_algorithm("5/20000d") {
        let limiter = client.limiter("case", &*limits).unwrap();
        assert!(limiter.check_n("k", 5).await.unwrap().allowed);
        let first = limiter.check("k").await.unwrap();
        assert_eq!((first.allowed, first.source), (false, Source::Store), "{limits}");
        let before = calls(&server);
        for cost in 1..=5 {
            let again = limiter.check_n("k", cost).await.unwrap();
            assert_eq!((again.allowed, again.source, again.remaining), (false, Source::DenyCache, 0), "{limits}");
            assert!(!again.degraded() && again.reason.is_none() && again.denied_by == Some(0));
            assert!(cost > 1 || again.retry_after <= first.retry_after, "{limits}");
            assert!(again.limit == 5 && again.reset_after <= first.reset_after, "{limits}: {again:?}");
        }
        assert_eq!(calls(&server), before, "{limits}");
        let many = limiter.check_many([("k", 1), ("other", 1), ("k", 2)]).await.unwrap();
        let sources: Vec<_> = many.iter().map(|decision| decision.source).collect();
        assert_eq!(sources, [Source::DenyCache, Source::Store, Source::DenyCache], "{limits}");
        assert!(limiter.check_n("k", 0).await.unwrap().allowed, "{limits}: nothing is asked for");
        assert_eq!(limiter.peek("k").await.unwrap().source, Source::Store, "{limits}");
        assert_eq!(denied(&limiter, "k", 1).await, Source::DenyCache, "{limits}");
    }
}

#[tokio::test]
async fn smaller_costs_are_judged_by_the_state() {
    let server = Server::start_default();
    let client = client(&server);
    for limits in of_each_algorithm("10/20000d") {
        let limiter = client.limiter("case", &*limits).unwrap();
        assert!(limiter.check_n("k", 6).await.unwrap().allowed);
        assert_eq!(denied(&limiter, "k", 5).await, Source::Store, "{limits}");
        assert_eq!(denied(&limiter, "k", 5).await, Source::DenyCache, "{limits}");
        assert_eq!(denied(&limiter, "k", 7).await, Source::DenyCache, "{limits}");
        let smaller = limiter.check_n("k", 4).await.unwrap();
        assert_eq!((smaller.allowed, smaller.source, smaller.remaining), (true, Source::Store, 0), "{limits}");
    }
}

#[tokio::test]
async fn dg_09_what_this_client_gives_back_is_seen_at_once() {
    let server = Server::start_default();
    let client = client(&server);
    for limits in of_each_algorithm("1/min") {
        for what in ["reset", "refund", "limit"] {
            let limiter = client.limiter(format!("{limits} {what}"), &*limits).unwrap();
            assert!(limiter.check("k").await.unwrap().allowed, "{limits}, {what}");
            assert_eq!(denied(&limiter, "k", 1).await, Source::Store, "{limits}, {what}");
            assert_eq!(denied(&limiter, "k", 1).await, Source::DenyCache, "{limits}, {what}");
            let limiter = match what {
                "reset" => limiter.reset("k").await.map(|_| limiter).unwrap(),
                "refund" => limiter.refund("k", 1).await.map(|_| limiter).unwrap(),
                _ => client.limiter(limiter.name(), &*limits.replace("1/min", "5/min")).unwrap(),
            };
            let decision = limiter.check("k").await.unwrap();
            assert_eq!(decision.source, Source::Store, "{limits}, {what}");
            // A bucket keeps the time at which it is full again: the larger one is empty too.
            let is_empty = what == "limit" && limits.starts_with("token-bucket");
            assert_eq!(decision.allowed, !is_empty, "{limits}, {what}: {decision:?}");
        }
    }
}

#[tokio::test]
async fn dg_09_what_others_give_back_is_seen_within_the_time_that_the_option_names() {
    let server = Server::start_default();
    let longest = Duration::from_millis(300);
    let client = builder(&server).deny_cache_max(longest).build().unwrap();
    let other = patient(&server.url()).build().unwrap();
    for limits in of_each_algorithm("1/h") {
        let limiter = client.limiter("case", &*limits).unwrap();
        assert!(limiter.check("k").await.unwrap().allowed);
        let asked = Instant::now();
        assert_eq!(denied(&limiter, "k", 1).await, Source::Store, "{limits}");
        let _ = other.limiter("case", &*limits).unwrap().reset("k").await.unwrap();
        let mut decision = limiter.check("k").await.unwrap();
        while !decision.allowed {
            assert_eq!(decision.source, Source::DenyCache, "{limits}");
            assert!(asked.elapsed() < longest + Duration::from_secs(2), "{limits}");
            tokio::time::sleep(Duration::from_millis(5)).await;
            decision = limiter.check("k").await.unwrap();
        }
        assert!(asked.elapsed() >= longest, "{limits}: {:?}", asked.elapsed());
    }
}

#[tokio::test]
async fn dg_09_turned_off_every_call_asks_the_store() {
    let server = Server::start_default();
    let client = builder(&server).deny_cache_max(Duration::ZERO).build().unwrap();
    let limiter = client.limiter("case", "1/h").unwrap();
    assert!(limiter.check("k").await.unwrap().allowed);
    for _ in 0..3 {
        assert_eq!(denied(&limiter, "k", 1).await, Source::Store);
    }
}

#[tokio::test]
async fn a_denial_that_was_on_its_way_when_something_was_given_back_is_not_remembered() {
    let server = Server::start_default();
    let client = client(&server);
    let limiter = client.limiter("case", "1/20000d").unwrap();
    for round in 0..200 {
        let key = round.to_string();
        assert!(limiter.check(&key).await.unwrap().allowed);
        let (_, given_back) = tokio::join!(limiter.check(&key), limiter.refund(&key, 1));
        assert!(!given_back.unwrap().degraded());
        // Whichever of the two came first: what is there now is there for this client too.
        let left = limiter.peek(&key).await.unwrap().remaining;
        assert_eq!(limiter.check(&key).await.unwrap().allowed, left == 1, "{round}");
    }
}

#[tokio::test]
async fn a_cached_denial_ends_when_the_call_can_pass() {
    let server = Server::start_default();
    let client = client(&server);
    for limits in of_each_algorithm("2/200ms") {
        let limiter = client.limiter("case", &*limits).unwrap();
        let mut allowed = 0;
        let started = Instant::now();
        while started.elapsed() < Duration::from_secs(2) {
            let decision = limiter.check("k").await.unwrap();
            allowed += u64::from(decision.allowed);
            let wait = decision.retry_after.unwrap();
            tokio::time::sleep(wait.max(Duration::from_micros(200))).await;
        }
        // Ten in a second, and two at the beginning; a busy machine comes late to each.
        assert!(allowed >= 12, "{limits}: {allowed}");
        assert!(allowed as f64 <= 10.0 * started.elapsed().as_secs_f64() + 4.0, "{limits}: {allowed}");
    }
}

#[tokio::test]
async fn mm_01_a_flood_of_denied_keys_does_not_grow_the_cache() {
    let server = Server::start_default();
    let client = client(&server);
    let limiter = client.limiter("case", "1/20000d").unwrap();
    let resident = || {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap()
    };
    let deny = async |from: u32, to: u32| {
        for start in (from..to).step_by(1000) {
            let keys: Vec<String> = (start..start + 1000).map(|number| format!("2001:db8::{number:x}")).collect();
            let calls = keys.iter().flat_map(|key| [(key, 1), (key, 1)]);
            let decisions = limiter.check_many(calls).await.unwrap();
            assert_eq!(decisions.iter().filter(|decision| decision.allowed).count(), 1000);
        }
    };
    deny(0, 100_000).await;
    let before = resident();
    deny(100_000, 300_000).await;
    let grown = resident().saturating_sub(before);
    assert!(grown < 16_000, "{grown} kB more, though no more keys are remembered");
    let mut times: Vec<Duration> = Vec::new();
    for number in 299_000..300_000 {
        let started = Instant::now();
        assert!(!limiter.check(format!("2001:db8::{number:x}")).await.unwrap().allowed);
        times.push(started.elapsed());
    }
    times.sort_unstable();
    assert!(times[500] < Duration::from_millis(1), "{:?}", times[500]);
}
