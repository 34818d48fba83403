//! Field cases TM: clocks that step back, and waits that were not what they said.

use std::time::Duration;

use grifo::testing::ManualClock;
use grifo::{Decision, Limiter};
use grifo_tests::Monitor;
use grifo_tests::case::{Place, START, check_at, hits_at, of_each_algorithm, patient, peek_at, refund_at};

const SECOND: Duration = Duration::from_secs(1);
const MILLISECOND: Duration = Duration::from_millis(1);

#[tokio::test]
async fn tm_01_late_calls_refill_no_second_twice() {
    for place in Place::each() {
        let limiter = place.limiter("5/s");
        let mut passed = Vec::new();
        for (millis, hits) in [(0, 5), (900, 5), (800, 1), (900, 4), (850, 3), (900, 3)] {
            passed.push(hits_at(&limiter, START + millis * MILLISECOND, "k", hits).await);
        }
        assert_eq!(passed, [5, 4, 0, 0, 0, 0], "{place}");
    }
}

#[tokio::test]
async fn tm_01_a_clock_that_steps_back_a_whole_refill_gives_no_token_by_stepping() {
    for place in Place::each() {
        let limiter = place.limiter("5/s");
        let mut passed = Vec::new();
        for (seconds, hits) in [(100, 5), (101, 4), (100, 1), (100, 5), (101, 9)] {
            passed.push(hits_at(&limiter, START + seconds * SECOND, "k", hits).await);
        }
        // Two seconds went by on this clock, so the bucket may have given 5 + 2 * 5 and no more.
        assert!(passed.iter().sum::<usize>() <= 15, "{place}: {passed:?}");
        assert_eq!(passed[2..4], [0, 0], "{place}: {passed:?}");
    }
}

#[tokio::test]
async fn tm_01_no_time_of_the_caller_is_sent() {
    let place = Place::redis();
    let server = place.server().unwrap();
    let limiter = place.limiter("5/s + sliding-window 100/min + fixed-window 9/h");
    let ((), lines) = Monitor::record_async(server, async {
        assert!(limiter.check("k").await.unwrap().allowed);
        assert!(limiter.peek("k").await.unwrap().allowed);
        assert!(limiter.refund("k", 1).await.unwrap().allowed);
        assert!(limiter.reset("k").await.unwrap().allowed);
        assert!(limiter.acquire("k", 1, SECOND).await.unwrap().allowed);
    })
    .await;
    let calls: Vec<_> = lines.iter().filter(|line| line.name().starts_with("EVAL")).collect();
    assert!(calls.len() >= 5, "{lines:?}");
    // Microseconds since the epoch have sixteen digits.
    let is_time = |arg: &Vec<u8>| arg.len() >= 16 && arg.iter().all(u8::is_ascii_digit);
    for call in calls {
        assert!(!call.args.iter().any(is_time), "{call:?}");
    }
    assert!(lines.iter().filter(|line| line.is_from_script() && line.name() == "TIME").count() >= 5);
}

/// How long after a step back a key may be locked: a window's period, two for the counter, the time to full of a bucket.
fn longest_lock(limiter: &Limiter) -> Duration {
    let limit = limiter.limits().as_slice()[0];
    if limit.algorithm() == grifo::Algorithm::SlidingWindowCounter { limit.period() * 2 } else { limit.period() }
}

async fn steps_back(limiter: &Limiter, place: &Place, key: &str, used: usize, back: Duration) {
    let before = START + 100 * SECOND;
    assert_eq!(hits_at(limiter, before, key, used).await, used);
    let then = peek_at(limiter, before, key).await;
    let now = before - back;
    let what = format!("{place}, {}, {key}", limiter.limits());
    let decision = check_at(limiter, now, key, 1).await;
    assert!(decision.remaining <= then.remaining, "{what}: {then:?}, {decision:?}");
    assert!(decision.remaining < 4 && decision.reset_after <= longest_lock(limiter), "{what}: {decision:?}");
    assert!(!decision.allowed || then.remaining > 0, "{what}: {then:?}, {decision:?}");
    waits_are_true(limiter, now, key, &what).await;
}

/// A call one microsecond before the wait is over fails, and one at its end passes; then the key is as new in time.
async fn waits_are_true(limiter: &Limiter, now: Duration, key: &str, what: &str) {
    while check_at(limiter, now, key, 1).await.allowed {}
    let denied: Decision = check_at(limiter, now, key, 1).await;
    let wait = denied.retry_after.unwrap();
    assert!(!denied.allowed && wait > Duration::ZERO && wait <= longest_lock(limiter), "{what}: {denied:?}");
    let early = now + wait - Duration::from_micros(1);
    assert!(!check_at(limiter, early, key, 1).await.allowed, "{what}: {denied:?}");
    assert!(check_at(limiter, now + wait, key, 1).await.allowed, "{what}: {denied:?}");
    let last = peek_at(limiter, now + wait, key).await;
    let fresh = peek_at(limiter, now + wait + last.reset_after, key).await;
    assert_eq!((fresh.remaining, fresh.reset_after), (4, Duration::ZERO), "{what}: {last:?}");
}

#[tokio::test]
async fn tm_02_a_clock_that_steps_back_gives_nothing_and_locks_nobody_out_for_long() {
    for place in Place::each() {
        for limits in of_each_algorithm("4/3s") {
            let limiter = place.limiter(&limits);
            for back in [MILLISECOND, 500 * MILLISECOND, 11 * SECOND, 86_400 * SECOND] {
                for used in [1, 3, 4] {
                    steps_back(&limiter, &place, &format!("{limits} {used} {back:?}"), used, back).await;
                }
            }
        }
    }
}

#[tokio::test]
async fn tm_02_a_refund_after_a_step_back_gives_back_what_it_says() {
    for place in Place::each() {
        for limits in of_each_algorithm("4/3s") {
            let limiter = place.limiter(&limits);
            let before = START + 100 * SECOND;
            assert_eq!(hits_at(&limiter, before, &limits, 4).await, 4);
            let decision = refund_at(&limiter, before - 11 * SECOND, &limits, 3).await;
            assert_eq!(decision.remaining, 3, "{place}, {limits}: {decision:?}");
            assert_eq!(hits_at(&limiter, before - 11 * SECOND, &limits, 5).await, 3, "{place}, {limits}");
        }
    }
}

#[tokio::test]
async fn tm_02_a_step_forward_gives_one_full_limit_and_no_more() {
    for place in Place::each() {
        for limits in of_each_algorithm("4/3s") {
            let limiter = place.limiter(&limits);
            assert_eq!(hits_at(&limiter, START, &limits, 9).await, 4);
            assert_eq!(hits_at(&limiter, START + 86_400 * SECOND, &limits, 9).await, 4, "{place}, {limits}");
            assert_eq!(hits_at(&limiter, START, &limits, 9).await, 0, "{place}, {limits}, and back");
        }
    }
}

#[tokio::test]
async fn tm_04_the_wait_is_that_of_the_oldest_hit_not_of_the_window() {
    for place in Place::each() {
        let limiter = place.limiter("sliding-window 10/6s");
        for index in 0..10 {
            assert!(check_at(&limiter, START + index * 200 * MILLISECOND, "k", 1).await.allowed, "{place}");
        }
        let denied = check_at(&limiter, START + 2 * SECOND, "k", 1).await;
        assert_eq!((denied.allowed, denied.retry_after), (false, Some(4 * SECOND)), "{place}");
        let more = check_at(&limiter, START + 2 * SECOND, "k", 4).await;
        assert_eq!(more.retry_after, Some(4 * SECOND + 600 * MILLISECOND), "{place}");
        let all = check_at(&limiter, START + 2 * SECOND, "k", 10).await;
        assert_eq!((all.retry_after, all.reset_after), (Some(5800 * MILLISECOND), 5800 * MILLISECOND), "{place}");
    }
}

#[tokio::test]
async fn tm_04_every_algorithm_waits_exactly_as_long_as_it_says() {
    for place in Place::each() {
        for limits in of_each_algorithm("10/6s") {
            let limiter = place.limiter(&limits);
            for (index, cost) in [1, 2, 5, 10].into_iter().enumerate() {
                let key = format!("{limits} {cost}");
                // An odd time, so that fractions matter.
                let start = START + Duration::from_micros(1_234_567 * (index as u64 + 1));
                for step in 0..10 {
                    assert!(check_at(&limiter, start + step * 130 * MILLISECOND, &key, 1).await.allowed || step > 7);
                }
                exact_wait(&limiter, start + 1300 * MILLISECOND, &key, cost).await;
            }
        }
    }
}

async fn exact_wait(limiter: &Limiter, now: Duration, key: &str, cost: u64) {
    let denied = check_at(limiter, now, key, cost).await;
    let Some(wait) = denied.retry_after.filter(|_| !denied.allowed) else { return };
    assert!(wait > Duration::ZERO, "{key}: {denied:?}");
    let early = check_at(limiter, now + wait - Duration::from_micros(1), key, cost).await;
    assert!(!early.allowed, "{key}: {denied:?}, then {early:?}");
    let due = check_at(limiter, now + wait, key, cost).await;
    assert!(due.allowed, "{key}: {denied:?}, then {due:?}");
}

#[tokio::test]
async fn tm_04_the_wait_shrinks_as_time_goes_by_on_the_manual_clock() {
    for limits in of_each_algorithm("1/6s") {
        let clock = ManualClock::at(START);
        let client = patient("memory://").clock(clock.clone()).build().unwrap();
        let limiter = client.limiter("case", &*limits).unwrap();
        assert!(limiter.check("k").await.unwrap().allowed);
        let first = limiter.check("k").await.unwrap().retry_after.unwrap();
        clock.advance(1500 * MILLISECOND);
        let second = limiter.check("k").await.unwrap().retry_after.unwrap();
        assert_eq!(first - second, 1500 * MILLISECOND, "{limits}");
        clock.advance(second);
        assert!(limiter.check("k").await.unwrap().allowed, "{limits}");
    }
}
