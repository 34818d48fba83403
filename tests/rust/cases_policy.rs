//! Who answers when the store cannot, what refund and reset do meanwhile, and which errors no policy hides.

use std::time::Duration;

use grifo::{Client, ClientBuilder, Decision, Error, ErrorKind, FailurePolicy, Limiter, Source};
use grifo_tests::case::{Place, eventually, of_each_algorithm, patient};
use grifo_tests::{Monitor, Server};

const SECOND: Duration = Duration::from_secs(1);
const POLICIES: [FailurePolicy; 4] =
    [FailurePolicy::Open, FailurePolicy::Local, FailurePolicy::Closed, FailurePolicy::Raise];

/// A builder for a server that is gone, and that server, whose port is kept.
fn gone() -> (Server, ClientBuilder) {
    let mut server = Server::start_default();
    server.kill_hard();
    let builder = Client::builder(server.url()).timeout(5 * SECOND);
    (server, builder)
}

async fn admitted(limiter: &Limiter, hits: usize) -> usize {
    let mut admitted = 0;
    for _ in 0..hits {
        let decision = limiter.check("k").await.unwrap();
        assert_eq!(decision.source, Source::Fallback);
        admitted += usize::from(decision.allowed);
    }
    admitted
}

#[tokio::test]
async fn dg_02_every_policy_names_its_source_and_reason() {
    let (_server, builder) = gone();
    let client = builder.build().unwrap();
    let limiter = client.limiter("case", "10/min + sliding-window 20/h").unwrap();
    let open = limiter.check_n("k", 3).await.unwrap();
    assert_eq!((open.allowed, open.source, open.limit, open.remaining), (true, Source::Open, 10, 10));
    assert_eq!((open.retry_after, open.reason), (Some(Duration::ZERO), Some(ErrorKind::Connection)));
    assert_eq!(open.limits.iter().map(|limit| limit.remaining).collect::<Vec<_>>(), [10, 20]);

    let closed = limiter.clone().on_failure(FailurePolicy::Closed).check("k").await.unwrap();
    assert_eq!((closed.allowed, closed.source, closed.limit, closed.remaining), (false, Source::Closed, 10, 0));
    assert!(closed.retry_after.unwrap() <= 2 * SECOND, "{closed:?}");
    assert_eq!((closed.reason, closed.denied_by), (Some(ErrorKind::Connection), None));

    let local = limiter.clone().on_failure(FailurePolicy::Local).check_n("k", 3).await.unwrap();
    assert_eq!((local.allowed, local.source, local.limit, local.remaining), (true, Source::Fallback, 10, 7));
    assert_eq!(local.reason, Some(ErrorKind::Connection));

    let raised = limiter.clone().on_failure(FailurePolicy::Raise).check("k").await.unwrap_err();
    assert_eq!(raised.kind(), ErrorKind::Connection);
    assert!([&open, &closed, &local].iter().all(|decision| decision.degraded()));
    assert_eq!((client.stats().decisions, client.stats().degraded), (4, 4));
}

#[tokio::test]
async fn dg_02_a_store_that_decides_leaves_no_reason() {
    for place in Place::each() {
        for policy in POLICIES {
            let client = patient(&place.url()).on_failure(policy).build().unwrap();
            let decision = client.limiter("case", "10/min").unwrap().check("k").await.unwrap();
            assert_eq!(
                (decision.source, decision.reason, decision.degraded()),
                (Source::Store, None, false),
                "{place}"
            );
            assert_eq!((client.stats().decisions, client.stats().degraded), (1, 0), "{place}");
        }
    }
}

#[tokio::test]
async fn dg_04_four_instances_with_a_quarter_each_admit_the_limit_together() {
    let (_server, builder) = gone();
    for limits in of_each_algorithm("100/20000d") {
        let mut together = 0;
        for _ in 0..4 {
            let client = builder.clone().on_failure(FailurePolicy::Local).fallback_share(0.25).build().unwrap();
            together += admitted(&client.limiter("case", &*limits).unwrap(), 100).await;
        }
        assert_eq!(together, 100, "{limits}");
    }
}

#[tokio::test]
async fn dg_04_a_share_is_rounded_down_but_to_one() {
    let (_server, builder) = gone();
    let client = builder.on_failure(FailurePolicy::Local).build().unwrap();
    for (share, wanted) in [(1.0, 100), (1.0 / 3.0, 33), (0.5, 50), (0.015, 1), (0.0001, 1)] {
        for limits in of_each_algorithm("100/20000d") {
            let limiter = client.limiter(format!("{share:e}"), &*limits).unwrap().fallback_share(share).unwrap();
            assert_eq!(admitted(&limiter, 110).await, wanted, "{limits}, {share}");
            let denied = limiter.check("k").await.unwrap();
            assert_eq!((denied.limit, denied.remaining), (100, 0), "{limits}: the rule's limit, never a share");
            assert!(denied.retry_after.unwrap() > SECOND, "{limits}, {share}: {denied:?}");
        }
    }
}

#[tokio::test]
async fn dg_04_the_smallest_share_is_no_whole_one() {
    let (_server, builder) = gone();
    for share in [0.000_09, 0.000_001, 1e-12, f64::MIN_POSITIVE] {
        let client = builder.clone().on_failure(FailurePolicy::Local).fallback_share(share).build().unwrap();
        for limits in of_each_algorithm("100/20000d") {
            assert_eq!(admitted(&client.limiter("case", &*limits).unwrap(), 110).await, 1, "{limits}, {share:e}");
        }
    }
}

#[tokio::test]
async fn dg_04_a_share_refills_at_its_share_of_the_rate() {
    let (_server, builder) = gone();
    let client = builder.on_failure(FailurePolicy::Local).fallback_share(0.25).build().unwrap();
    let limiter = client.limiter("case", "40/s").unwrap();
    assert_eq!(admitted(&limiter, 10).await, 10);
    let denied = loop {
        let decision = limiter.check("k").await.unwrap();
        if !decision.allowed {
            break decision;
        }
    };
    let wait = denied.retry_after.unwrap();
    assert!(wait <= Duration::from_millis(100) && denied.reset_after >= Duration::from_millis(900), "{denied:?}");
    tokio::time::sleep(wait).await;
    assert!(limiter.check("k").await.unwrap().allowed);
}

#[tokio::test]
async fn dg_04_a_cost_above_the_share_waits_for_the_store_and_takes_nothing() {
    let (_server, builder) = gone();
    let client = builder.on_failure(FailurePolicy::Local).fallback_share(0.25).build().unwrap();
    for limits in of_each_algorithm("100/20000d") {
        let limiter = client.limiter("case", &*limits).unwrap();
        let denied = limiter.check_n("k", 26).await.unwrap();
        assert_eq!((denied.allowed, denied.source, denied.limit), (false, Source::Fallback, 100), "{limits}");
        let wait = denied.retry_after.expect("not never: the store could admit it");
        assert!(wait > Duration::ZERO && wait <= 2 * SECOND, "{limits}: {denied:?}");
        let never = limiter.check_n("k", 101).await.unwrap();
        assert_eq!((never.source, never.retry_after), (Source::Limit, None), "{limits}");
        assert!(limiter.check_n("k", 25).await.unwrap().allowed, "{limits}");
    }
}

#[tokio::test]
async fn a_limiter_overrides_the_policy_of_its_client() {
    let (_server, builder) = gone();
    for of_client in POLICIES {
        let client = builder.clone().on_failure(of_client).build().unwrap();
        for of_limiter in POLICIES {
            let limiter = client.limiter("case", "10/min").unwrap().on_failure(of_limiter);
            let source = limiter.check("k").await.map(|decision| decision.source);
            match of_limiter {
                FailurePolicy::Open => assert_eq!(source, Ok(Source::Open)),
                FailurePolicy::Local => assert_eq!(source, Ok(Source::Fallback)),
                FailurePolicy::Closed => assert_eq!(source, Ok(Source::Closed)),
                _ => assert_eq!(source.unwrap_err().kind(), ErrorKind::Connection),
            }
        }
    }
}

#[tokio::test]
async fn a_limiter_overrides_the_deadline_of_its_client() {
    let server = Server::start_default();
    let limiter = patient(&server.url()).build().unwrap().limiter("case", "10/min").unwrap();
    assert!(limiter.check("k").await.unwrap().allowed);
    server.stop();
    let started = std::time::Instant::now();
    let error = limiter.timeout(Duration::from_millis(50)).unwrap().check("k").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(started.elapsed() >= Duration::from_millis(50) && started.elapsed() < SECOND, "{:?}", started.elapsed());
}

/// What every operation answers.
async fn every_operation(limiter: &Limiter, key: &[u8]) -> Vec<Result<Decision, Error>> {
    let many = limiter.check_many([(key, 1)]).await.map(|mut decisions| decisions.remove(0));
    vec![
        limiter.check(key).await,
        limiter.check_n(key, 0).await,
        many,
        limiter.peek(key).await,
        limiter.acquire(key, 1, Duration::ZERO).await,
        limiter.acquire(key, 1, SECOND / 10).await,
        limiter.refund(key, 1).await,
        limiter.refund(key, 0).await,
        limiter.reset(key).await,
    ]
}

#[tokio::test]
async fn bd_13_after_close_everything_is_the_error_closed_under_every_policy() {
    let server = Server::start_default();
    for url in ["memory://", &server.url(), "redis://127.0.0.1:1"] {
        for policy in POLICIES {
            let client = Client::builder(url).timeout(SECOND).on_failure(policy).build().unwrap();
            let limiter = client.limiter("case", "10/min").unwrap();
            let _ = limiter.check("k").await;
            client.clone().close();
            client.close();
            for answer in every_operation(&limiter, b"k").await {
                assert_eq!(answer.unwrap_err().kind(), ErrorKind::Closed, "{url}, {policy:?}");
            }
            assert_eq!(client.connect(SECOND).await.unwrap_err().kind(), ErrorKind::Closed);
            assert_eq!(client.ping().await.unwrap_err().kind(), ErrorKind::Closed);
            assert_eq!(client.limiter("other", "1/s").unwrap_err().kind(), ErrorKind::Closed);
            assert_eq!(limiter.check_n("k", 11).await.unwrap_err().kind(), ErrorKind::Closed, "never, but closed");
        }
    }
}

#[tokio::test]
async fn dg_07_a_bad_key_is_an_error_under_every_policy_and_reaches_no_server() {
    let place = Place::redis();
    let (_server, gone) = gone();
    let too_long = vec![b'k'; 65_537];
    for policy in POLICIES {
        let clients = [
            patient(&place.url()).on_failure(policy).build().unwrap(),
            gone.clone().on_failure(policy).build().unwrap(),
            patient("memory://").on_failure(policy).build().unwrap(),
        ];
        for client in &clients {
            let limiter = client.limiter("case", "10/min").unwrap();
            let (answers, lines) = Monitor::record_async(place.server().unwrap(), async {
                let mut answers = every_operation(&limiter, b"").await;
                answers.extend(every_operation(&limiter, &too_long).await);
                answers.push(limiter.check_many([("good", 1), ("", 1)]).await.map(|mut all| all.remove(0)));
                answers
            })
            .await;
            for answer in answers {
                assert_eq!(answer.unwrap_err().kind(), ErrorKind::InvalidKey, "{policy:?}");
            }
            assert!(lines.is_empty(), "{lines:?}");
            assert_eq!(client.stats().degraded, 0);
        }
    }
}

#[test]
fn wrong_options_are_refused_when_the_client_is_built() {
    let builder = || Client::builder("redis://127.0.0.1:1");
    let hour = 3600 * SECOND;
    for (what, wrong) in [
        ("timeout 0", builder().timeout(Duration::ZERO)),
        ("timeout too long", builder().timeout(hour + SECOND)),
        ("connect_timeout 0", builder().connect_timeout(Duration::ZERO)),
        ("share 0", builder().fallback_share(0.0)),
        ("share below 0", builder().fallback_share(-0.5)),
        ("share above 1", builder().fallback_share(1.000_001)),
        ("share NaN", builder().fallback_share(f64::NAN)),
        ("share infinite", builder().fallback_share(f64::INFINITY)),
        ("no keys", builder().max_keys(0)),
        ("no prefix", builder().prefix("")),
        ("braces in the prefix", builder().prefix("a{b}")),
        ("long prefix", builder().prefix("p".repeat(65))),
        ("clock of a server", builder().clock(grifo::testing::ManualClock::new())),
    ] {
        assert_eq!(wrong.build().unwrap_err().kind(), ErrorKind::InvalidOptions, "{what}");
    }
}

#[test]
fn wrong_options_of_a_limiter_are_refused() {
    let client = Client::builder("redis://127.0.0.1:1").build().unwrap();
    for name in [String::new(), "n".repeat(256)] {
        assert_eq!(client.limiter(name, "1/s").unwrap_err().kind(), ErrorKind::InvalidOptions);
    }
    assert!(client.limiter("n".repeat(255), "1/s").is_ok());
    let limiter = client.limiter("case", "1/s").unwrap();
    for share in [0.0, -1.0, 1.5, f64::NAN] {
        assert_eq!(limiter.clone().fallback_share(share).unwrap_err().kind(), ErrorKind::InvalidOptions, "{share}");
    }
    assert_eq!(limiter.timeout(Duration::ZERO).unwrap_err().kind(), ErrorKind::InvalidOptions);
    for limits in ["1/s + 2/s", "1/s + 1/min + 1/h + 1/d + 2/2d", "10/m", "1.5/s", "-1/s", "fixed-window 1/s burst 2"] {
        assert_eq!(client.limiter("case", limits).unwrap_err().kind(), ErrorKind::InvalidLimit, "{limits}");
    }
}

#[tokio::test]
async fn refund_and_reset_during_an_outage_are_degraded_and_counted() {
    let mut server = Server::start_default();
    let client = patient(&server.url()).build().unwrap();
    let limiter = client.limiter("case", "10/20000d").unwrap();
    for (policy, source) in [
        (FailurePolicy::Open, Source::Open),
        (FailurePolicy::Closed, Source::Closed),
        (FailurePolicy::Local, Source::Fallback),
    ] {
        assert!(!limiter.check_n("k", 3).await.unwrap().degraded());
        server.kill_hard();
        let guarded = limiter.clone().on_failure(policy);
        eventually("the outage", 2 * SECOND, async || guarded.peek("k").await.unwrap().degraded()).await;
        let before = client.stats();
        for decision in [guarded.refund("k", 2).await.unwrap(), guarded.reset("k").await.unwrap()] {
            assert_eq!((decision.source, decision.degraded()), (source, true));
            assert!(decision.reason.is_some());
        }
        assert_eq!(client.stats().degraded, before.degraded + 2);
        assert_eq!(client.stats().decisions, before.decisions + 2);
        server.restart();
        let again = guarded.clone();
        eventually("the recovery", 3 * SECOND, async || !again.peek("k").await.unwrap().degraded()).await;
        assert_eq!(limiter.peek("k").await.unwrap().remaining, 10, "the server forgot all, and nothing came later");
    }
    server.kill_hard();
    eventually("the outage", 2 * SECOND, async || limiter.peek("k").await.is_err()).await;
    let before = client.stats().degraded;
    limiter.refund("k", 1).await.unwrap_err();
    limiter.reset("k").await.unwrap_err();
    assert_eq!(client.stats().degraded, before + 2);
}

#[tokio::test]
async fn the_local_state_follows_refund_and_reset() {
    let (_server, builder) = gone();
    let client = builder.on_failure(FailurePolicy::Local).build().unwrap();
    for limits in of_each_algorithm("5/20000d") {
        let limiter = client.limiter("case", &*limits).unwrap();
        assert_eq!(admitted(&limiter, 9).await, 5, "{limits}");
        assert_eq!(limiter.refund("k", 2).await.unwrap().remaining, 2, "{limits}");
        assert_eq!(admitted(&limiter, 9).await, 2, "{limits}");
        assert_eq!(limiter.refund("k", 99).await.unwrap().remaining, 5, "{limits}");
        assert_eq!(admitted(&limiter, 9).await, 5, "{limits}");
        assert_eq!(limiter.reset("k").await.unwrap().remaining, 5, "{limits}");
        assert_eq!(admitted(&limiter, 9).await, 5, "{limits}");
    }
}

#[tokio::test]
async fn dg_01_what_was_taken_in_the_store_counts_again_after_the_outage() {
    let server = Server::start_default();
    let proxy = grifo_tests::Proxy::start(server.addr());
    let client = patient(&proxy.url()).on_failure(FailurePolicy::Local).build().unwrap();
    let limiter = client.limiter("case", "5/20000d").unwrap();
    for _ in 0..3 {
        assert_eq!(limiter.check("k").await.unwrap().source, Source::Store);
    }
    proxy.set(grifo_tests::Mode::Refuse);
    for _ in 0..3 {
        assert_eq!(limiter.check("k").await.unwrap().source, Source::Fallback);
    }
    proxy.set(grifo_tests::Mode::Forward);
    eventually("the recovery", 3 * SECOND, async || !limiter.peek("k").await.unwrap().degraded()).await;
    assert_eq!(limiter.peek("k").await.unwrap().remaining, 2);
    let mut answers = Vec::new();
    for _ in 0..3 {
        answers.push(limiter.check("k").await.unwrap().allowed);
    }
    assert_eq!(answers, [true, true, false]);
}
