//! Giving back: never above full, never making a key, and in a bounded number of calls.

use std::time::Duration;

use grifo::testing::ManualClock;
use grifo_tests::case::{ALGORITHMS, Place, of_each_algorithm, patient, stored_keys};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test]
async fn refund_never_fills_above_full() {
    for place in Place::each() {
        for limits in of_each_algorithm("10/20000d") {
            let limiter = place.limiter(&limits);
            assert!(limiter.check_n(&limits, 4).await.unwrap().allowed);
            for (n, left) in [(0, 6), (1, 7), (2, 9), (5, 10), (1, 10)] {
                let decision = limiter.refund(&limits, n).await.unwrap();
                assert_eq!((decision.remaining, decision.allowed), (left, true), "{place}, {limits}, {n}");
            }
            assert!(limiter.check_n(&limits, 10).await.unwrap().allowed, "{place}, {limits}");
            assert!(!limiter.check(&limits).await.unwrap().allowed, "{place}, {limits}");
        }
    }
}

/// What the previous window of a counter holds is never given back, so that this key does not get full.
#[test]
fn refund_of_any_amount_ends() {
    let (sender, receiver) = std::sync::mpsc::channel();
    // On a thread of its own: what never ends in memory never yields either.
    std::thread::spawn(move || {
        let work = async {
            let clock = ManualClock::new();
            let client = patient("memory://").clock(clock.clone()).build().unwrap();
            let limiter = client.limiter("case", "sliding-window 9/10s + sliding-window-counter 9/10s").unwrap();
            assert!(limiter.check_n("k", 5).await.unwrap().allowed);
            clock.advance(10 * SECOND);
            assert!(limiter.check_n("k", 2).await.unwrap().allowed);
            let decision = limiter.refund("k", u64::MAX).await.unwrap();
            decision.limits.iter().map(|limit| limit.remaining).collect::<Vec<_>>()
        };
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
            sender.send(work.await).unwrap();
        });
    });
    assert_eq!(receiver.recv_timeout(5 * SECOND).expect("the refund ends"), [9, 4]);
}

#[tokio::test]
async fn refund_of_a_huge_amount_is_a_few_calls_while_others_hit_the_key() {
    let place = Place::redis();
    let limiter = place.limiter("sliding-window 100/20000d");
    let other = limiter.clone();
    let hits = tokio::spawn(async move {
        while other.check("k").await.is_ok() {
            tokio::task::yield_now().await;
        }
    });
    let refund = tokio::time::timeout(5 * SECOND, limiter.refund("k", u64::MAX)).await;
    hits.abort();
    assert!(!refund.expect("the refund ends").unwrap().degraded());
}

#[tokio::test]
async fn refund_and_reset_never_make_a_key() {
    let place = Place::redis();
    let server = place.server().unwrap();
    let set = ALGORITHMS.map(|algorithm| format!("{algorithm} 10/20000d")).join(" + ");
    for limits in of_each_algorithm("10/20000d").into_iter().chain([set]) {
        let limiter = place.limiter(&limits);
        for n in [0, 1, 10, u64::MAX] {
            assert_eq!(limiter.refund("k", n).await.unwrap().remaining, 10, "{limits}");
        }
        assert_eq!(limiter.reset("k").await.unwrap().remaining, 10, "{limits}");
        assert_eq!(limiter.peek("k").await.unwrap().remaining, 10, "{limits}");
        assert!(stored_keys(server).is_empty(), "{limits}");
        assert!(limiter.check_n("k", 2).await.unwrap().allowed);
        assert_eq!(limiter.refund("k", 2).await.unwrap().remaining, 10, "{limits}");
        assert!(stored_keys(server).is_empty(), "{limits}: as new is no key");
        assert!(limiter.check_n("k", 2).await.unwrap().allowed);
        let reset = limiter.reset("k").await.unwrap();
        assert_eq!((reset.allowed, reset.remaining, reset.reset_after), (true, 10, Duration::ZERO), "{limits}");
        assert!(stored_keys(server).is_empty(), "{limits}");
    }
}
