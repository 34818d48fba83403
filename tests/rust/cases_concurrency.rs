//! Field cases CC: over-admission, partial charges, double charges, and what passes at the edge of a window.

use std::time::Duration;

use grifo::testing::{Operation, decide_at};
use grifo::{ErrorKind, FailurePolicy, Limiter};
use grifo_tests::case::{
    ALGORITHMS, PATIENCE, Place, START, check_at, hits_at, of_each_algorithm, patient, peek_at, server_time,
};
use grifo_tests::workers::{Counts, Work, run};
use grifo_tests::{Mode, Proxy};

const WORKERS: usize = 8;

fn work<'a>(url: &'a str, limits: &'a str) -> Work<'a> {
    let program = env!("CARGO_BIN_EXE_worker");
    Work { program, url, limits, keys: 1, hits: 10, callers: 5, prefix: limits }
}

/// Every hit was answered by the store.
fn all_answered(counts: &Counts, hits: usize, what: &str) {
    assert_eq!((counts.degraded, counts.errors), (0, 0), "{what}");
    assert_eq!(counts.allowed + counts.denied, hits as u64, "{what}");
}

#[test]
fn cc_01_eight_processes_admit_exactly_the_limit() {
    let place = Place::redis();
    for limits in of_each_algorithm("100/20000d") {
        let counts = run(WORKERS, &work(&place.url(), &limits));
        all_answered(&counts, WORKERS * 50, &limits);
        assert_eq!(counts.allowed, 100, "{limits}");
    }
}

#[test]
fn cc_01_eight_processes_admit_exactly_the_limit_of_each_of_a_thousand_keys() {
    let place = Place::redis();
    let set = "token-bucket 5/20000d + sliding-window 6/20000d + fixed-window 7/20000d".to_owned();
    for limits in of_each_algorithm("5/20000d").into_iter().chain([set]) {
        let counts = run(WORKERS, &Work { keys: 1000, hits: 1, callers: 1, ..work(&place.url(), &limits) });
        all_answered(&counts, WORKERS * 1000, &limits);
        assert!(counts.by_key.iter().all(|allowed| *allowed == 5), "{limits}: {:?}", counts.by_key);
    }
}

#[tokio::test]
async fn cc_01_eight_processes_share_two_refilling_limits() {
    let place = Place::redis();
    let server = place.server().unwrap();
    let limits = "10/s + 1000/h";
    let started = server_time(server);
    let counts = run(WORKERS, &Work { hits: 60, ..work(&place.url(), limits) });
    all_answered(&counts, WORKERS * 300, limits);
    let limiter = place.client().limiter("workers", limits).unwrap();
    let left = limiter.peek(format!("{limits}0")).await.unwrap();
    let seconds = (server_time(server) - started).as_secs_f64();
    assert!(counts.allowed as f64 <= 10.0 + 10.0 * seconds, "{} in {seconds} s", counts.allowed);
    assert!(counts.allowed >= 10, "{}", counts.allowed);
    // What the hour's bucket lacks, and what it was given back meanwhile, is what was admitted.
    let lacking = (1000 - left.limits[1].remaining) as f64;
    let refilled = seconds * 1000.0 / 3600.0;
    let admitted = counts.allowed as f64;
    assert!(lacking <= admitted + 1.0 && admitted <= lacking + refilled + 1.0, "{admitted}: {lacking}, {refilled}");
}

#[tokio::test]
async fn cc_01_eight_processes_share_two_refilling_limits_on_a_thousand_keys() {
    let place = Place::redis();
    let server = place.server().unwrap();
    let limits = "10/s + 1000/h";
    let started = server_time(server);
    let counts = run(WORKERS, &Work { keys: 1000, hits: 2, callers: 1, ..work(&place.url(), limits) });
    let seconds = (server_time(server) - started).as_secs_f64();
    all_answered(&counts, WORKERS * 2000, limits);
    assert!(counts.by_key.iter().all(|allowed| *allowed as f64 <= 10.0 + 10.0 * seconds), "{:?}", counts.by_key);
    assert!(counts.by_key.iter().all(|allowed| *allowed >= 10), "{:?}", counts.by_key);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cc_01_many_callers_of_one_client_admit_exactly_the_limit() {
    for place in Place::each() {
        let client = place.client();
        for limits in of_each_algorithm("100/20000d") {
            let limiter = client.limiter("case", &*limits).unwrap();
            let hit = |limiter: Limiter| async move { limiter.check("k").await.unwrap().allowed };
            let hits: Vec<_> = (0..400).map(|_| tokio::spawn(hit(limiter.clone()))).collect();
            let mut passed = 0;
            for hit in hits {
                passed += usize::from(hit.await.unwrap());
            }
            assert_eq!(passed, 100, "{place}, {limits}");
        }
    }
}

/// A limiter of `1/min` and `10/min` of two algorithms, in the given order.
async fn one_and_ten(place: &Place, one: &str, ten: &str, reversed: bool) {
    let (narrow, wide) = (format!("{one} 1/min"), format!("{ten} 10/min"));
    let set = if reversed { format!("{wide} + {narrow}") } else { format!("{narrow} + {wide}") };
    let client = place.client();
    let limiter = client.limiter("case", &*set).unwrap();
    let denier = usize::from(reversed);
    let first = check_at(&limiter, START, &set, 1).await;
    assert_eq!((first.allowed, first.remaining, first.limit), (true, 0, 1), "{place}, {set}");
    for _ in 0..19 {
        let denied = check_at(&limiter, START, &set, 1).await;
        assert_eq!((denied.allowed, denied.denied_by), (false, Some(denier)), "{place}, {set}");
        let longest = denied.limits.iter().map(|limit| limit.retry_after.unwrap()).max();
        assert_eq!(denied.retry_after, longest, "{place}, {set}");
    }
    let peeked = peek_at(&limiter, START, &set).await;
    assert_eq!(peeked.limits[1 - denier].remaining, 9, "{place}, {set}");
    let alone = client.limiter("case", &*wide).unwrap();
    assert_eq!(peek_at(&alone, START, &set).await.remaining, 9, "{place}, {set}");
}

#[tokio::test]
async fn cc_03_what_one_limit_denies_spends_no_other() {
    for place in Place::each() {
        for one in ALGORITHMS {
            for ten in ALGORITHMS.into_iter().filter(|ten| *ten != one) {
                one_and_ten(&place, one, ten, false).await;
                one_and_ten(&place, one, ten, true).await;
            }
        }
    }
}

#[tokio::test]
async fn cc_03_two_buckets_of_different_periods_wait_for_the_slower() {
    for place in Place::each() {
        for set in ["1/s + 2/h + 50/d", "50/d + 2/h + 1/s", "2/h + 1/s + 50/d"] {
            let limiter = place.limiter(set);
            assert!(check_at(&limiter, START, set, 1).await.allowed);
            assert!(!check_at(&limiter, START, set, 1).await.allowed);
            assert!(check_at(&limiter, START + Duration::from_secs(1), set, 1).await.allowed);
            let denied = check_at(&limiter, START + Duration::from_secs(1), set, 1).await;
            let hour = limiter.limits().as_slice().iter().position(|limit| limit.count() == 2);
            assert_eq!(denied.denied_by, hour, "{place}, {set}");
            assert_eq!(denied.retry_after, Some(Duration::from_secs(1799)), "{place}, {set}");
            let day = 2 - usize::from(set.starts_with("50")) * 2;
            assert_eq!(denied.limits[day].remaining, 48, "{place}, {set}");
        }
    }
}

#[tokio::test]
async fn cc_03_an_impossible_cost_for_one_limit_spends_no_other() {
    for place in Place::each() {
        let limiter = place.limiter("10/h + sliding-window 3/d");
        for _ in 0..5 {
            assert!(!limiter.check_n("k", 4).await.unwrap().allowed);
        }
        assert_eq!(limiter.peek("k").await.unwrap().limits[0].remaining, 10, "{place}");
    }
}

/// A limiter behind a proxy, connected and with all scripts loaded, and one that goes to the server directly.
async fn behind(proxy: &Proxy, place: &Place, limits: &str) -> (Limiter, Limiter) {
    let client = patient(&proxy.url()).on_failure(FailurePolicy::Open).build().unwrap();
    let limiter = client.limiter("case", limits).unwrap();
    client.connect(Duration::from_secs(5)).await.unwrap();
    // The record of partitions is renewed beside the first call: its reply is not to be mistaken for another's.
    assert!(!limiter.check("warm").await.unwrap().degraded());
    tokio::time::sleep(Duration::from_millis(50)).await;
    (limiter.timeout(Duration::from_millis(300)).unwrap(), place.limiter(limits))
}

#[tokio::test]
async fn cc_04_a_lost_reply_is_no_second_charge() {
    let place = Place::redis();
    let proxy = Proxy::start(place.server().unwrap().addr());
    for limits in of_each_algorithm("10/20000d") {
        for mode in [Mode::DropReplies, Mode::CloseAfterRequest, Mode::Delay(Duration::from_millis(600))] {
            proxy.set(Mode::Forward);
            let (limiter, direct) = behind(&proxy, &place, &limits).await;
            let key = format!("{limits} {mode:?}");
            proxy.set(mode);
            let decision = limiter.check(&key).await.unwrap();
            assert!(decision.degraded(), "{key}");
            assert!(matches!(decision.reason, Some(ErrorKind::Timeout | ErrorKind::Connection)), "{decision:?}");
            assert_eq!(direct.peek(&key).await.unwrap().remaining, 9, "{key}");
            proxy.cut();
            proxy.set(Mode::Forward);
            assert!(!place.client().limiter("other", "1/s").unwrap().check(&key).await.unwrap().degraded());
            assert_eq!(direct.peek(&key).await.unwrap().remaining, 9, "{key}, later");
        }
    }
}

#[tokio::test]
async fn cc_04_a_lost_reply_is_no_second_refund_and_no_second_charge_of_many() {
    let place = Place::redis();
    let proxy = Proxy::start(place.server().unwrap().addr());
    for limits in of_each_algorithm("10/20000d") {
        for mode in [Mode::DropReplies, Mode::CloseAfterRequest] {
            proxy.set(Mode::Forward);
            let (limiter, direct) = behind(&proxy, &place, &limits).await;
            let keys = [1, 2, 3].map(|index| format!("{limits} {mode:?} {index}"));
            assert!(direct.check_n(&keys[0], 5).await.unwrap().allowed);
            proxy.set(mode);
            assert!(limiter.refund(&keys[0], 2).await.unwrap().degraded());
            assert_eq!(direct.peek(&keys[0]).await.unwrap().remaining, 7, "{keys:?}");
            proxy.set(Mode::Forward);
            let (limiter, _) = behind(&proxy, &place, &limits).await;
            proxy.set(mode);
            let decisions = limiter.check_many(keys.iter().map(|key| (key, 3))).await.unwrap();
            assert!(decisions.iter().all(grifo::Decision::degraded), "{keys:?}");
            for (key, left) in keys.iter().zip([4, 7, 7]) {
                assert_eq!(direct.peek(key).await.unwrap().remaining, left, "{key}");
            }
        }
    }
}

#[tokio::test]
async fn cc_04_a_request_that_arrives_late_is_charged_once_at_most() {
    let place = Place::redis();
    let proxy = Proxy::start(place.server().unwrap().addr());
    let (limiter, direct) = behind(&proxy, &place, "10/20000d").await;
    proxy.set(Mode::Stall);
    assert!(limiter.check("k").await.unwrap().degraded());
    assert_eq!(direct.peek("k").await.unwrap().remaining, 10);
    proxy.set(Mode::Forward);
    let patient = limiter.timeout(PATIENCE).unwrap();
    assert!(!patient.check("other").await.unwrap().degraded());
    assert!(direct.peek("k").await.unwrap().remaining >= 9);
}

#[tokio::test]
async fn cc_06_twice_the_limit_passes_at_the_edge_of_a_fixed_window_alone() {
    let edge = START + Duration::from_secs(2);
    let around = Duration::from_millis(10);
    for place in Place::each() {
        for (algorithm, wanted) in ALGORITHMS.into_iter().zip([0, 0, 0, 60]) {
            let limiter = place.limiter(&format!("{algorithm} 60/2s"));
            assert_eq!(hits_at(&limiter, edge - around, algorithm, 60).await, 60, "{place}, {algorithm}");
            assert_eq!(hits_at(&limiter, edge + around, algorithm, 60).await, wanted, "{place}, {algorithm}");
        }
    }
}

#[tokio::test]
async fn cc_06_no_span_of_one_period_holds_more_than_the_limit() {
    for place in Place::each() {
        // The counter is an estimate: it takes the hits of the previous window for evenly spread.
        for (algorithm, most) in [("sliding-window", 12), ("sliding-window-counter", 15)] {
            let limiter = place.limiter(&format!("{algorithm} 12/2s"));
            let mut passed = Vec::new();
            for step in 0..60_u32 {
                let now = START + Duration::from_millis(137) * step;
                passed.push((now, hits_at(&limiter, now, algorithm, 3).await));
            }
            for (now, _) in &passed {
                let within = passed.iter().filter(|(at, _)| at <= now && *at + Duration::from_secs(2) > *now);
                let sum: usize = within.map(|(_, count)| count).sum();
                assert!(sum <= most, "{place}, {algorithm}: {sum} by {:?}", *now - START);
            }
            assert!(passed.iter().map(|(_, count)| count).sum::<usize>() >= 36, "{place}, {algorithm}");
        }
    }
}

#[tokio::test]
async fn cc_01_one_call_of_one_key_many_times_is_as_exact() {
    for place in Place::each() {
        for limits in of_each_algorithm("10/min") {
            let limiter = place.limiter(&limits);
            let entries = vec![(&limiter, limits.as_bytes(), 3); 5];
            let decisions = decide_at(Operation::Check, START, &entries).await.unwrap();
            let answers: Vec<_> = decisions.iter().map(|decision| (decision.allowed, decision.remaining)).collect();
            assert_eq!(answers, [(true, 7), (true, 4), (true, 1), (false, 1), (false, 1)], "{place}, {limits}");
        }
    }
}
