//! Field cases AR: numbers that overflowed, wrapped, lost a fraction or were read as something else.

use std::time::Duration;

use grifo::testing::ManualClock;
use grifo::{Client, ErrorKind, Limit, Limits, Source};
use grifo_tests::case::{
    ALGORITHMS, Place, START, allowed, check_at, dump, expires_at, hits_at, of_each_algorithm, patient, peek_at, pttl,
    stored_key, stored_keys,
};
use grifo_tests::{CommandStats, Monitor};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test]
async fn ar_01_an_idle_user_of_a_fast_bucket_is_allowed() {
    for place in Place::each() {
        let limiter = place.limiter("1000000/s");
        for (key, idle) in [("short", 12 * 3600), ("long", 10 * 365 * 86_400)] {
            assert!(check_at(&limiter, START, key, 1_000_000).await.allowed);
            let decision = check_at(&limiter, START + idle * SECOND, key, 1).await;
            assert!(decision.allowed, "{place}");
            assert_eq!(decision.remaining, 999_999, "{place}");
        }
    }
}

#[tokio::test]
async fn ar_01_idle_keys_of_the_largest_limits_are_as_new() {
    let largest = ["9007199254740/s", "sliding-window 9007199254740991/d", "fixed-window 9007199254740991/d"];
    for place in Place::each() {
        for limits in largest.into_iter().chain(["sliding-window-counter 104249991/d"]) {
            let limiter = place.limiter(limits);
            let capacity = limiter.limits().as_slice()[0].capacity();
            assert!(check_at(&limiter, START, limits, capacity).await.allowed, "{place}, {limits}");
            let later = START + 20 * 365 * 86_400 * SECOND;
            assert_eq!(peek_at(&limiter, later, limits).await.remaining, capacity, "{place}, {limits}");
            assert!(check_at(&limiter, later, limits, capacity).await.allowed, "{place}, {limits}");
        }
    }
}

#[tokio::test]
async fn ar_02_a_cost_that_would_wrap_is_denied_and_takes_nothing() {
    let costs = [2, 200_000_000, 1 << 31, (1 << 32) + 1, 1 << 53, (1 << 53) + 1, i64::MAX as u64, 1 << 63, u64::MAX];
    for place in Place::each() {
        for limits in of_each_algorithm("1/d") {
            let limiter = place.limiter(&limits);
            for cost in costs {
                let decision = limiter.check_n(&limits, cost).await.unwrap();
                assert!(!decision.allowed, "{place}, {limits}, {cost}");
                assert_eq!((decision.source, decision.retry_after), (Source::Limit, None), "{place}, {limits}, {cost}");
            }
            assert!(limiter.check(&limits).await.unwrap().allowed, "{place}, {limits}");
            for cost in costs {
                assert!(!limiter.check_n(&limits, cost).await.unwrap().allowed, "{place}, {limits}, {cost}, used up");
            }
        }
    }
}

#[tokio::test]
async fn ar_02_a_refund_that_would_wrap_fills_up_and_no_more() {
    for place in Place::each() {
        for limits in of_each_algorithm("7/d") {
            let limiter = place.limiter(&limits);
            for n in [8, 200_000_000, 1 << 32, 1 << 53, (1 << 53) + 1, 1 << 63, u64::MAX] {
                assert!(limiter.check_n(&limits, 7).await.unwrap().allowed, "{place}, {limits}, {n}");
                assert_eq!(limiter.refund(&limits, n).await.unwrap().remaining, 7, "{place}, {limits}, {n}");
            }
        }
    }
}

#[tokio::test]
async fn ar_03_a_cost_above_the_limit_is_not_taken_for_an_empty_key() {
    for place in Place::each() {
        for limits in of_each_algorithm("10/20000d") {
            let limiter = place.limiter(&limits);
            let answers = allowed(&limiter, &limits, &[5, 100, 6, 5, 1]).await;
            assert_eq!(answers, [true, false, false, true, false], "{place}, {limits}");
        }
    }
}

#[tokio::test]
async fn ar_05_an_impossible_call_is_told_never() {
    for place in Place::each() {
        for limits in of_each_algorithm("3/2s") {
            let limiter = place.limiter(&limits);
            let decision = limiter.check_n(&limits, 4).await.unwrap();
            assert!(!decision.allowed && decision.retry_after.is_none(), "{place}: {decision:?}");
            assert_eq!((decision.limit, decision.remaining, decision.denied_by), (3, 3, Some(0)), "{place}");
            assert!(!decision.degraded() && decision.reset_after.is_zero(), "{place}: {decision:?}");
        }
    }
}

#[tokio::test]
async fn ar_05_one_limit_of_several_makes_a_call_impossible() {
    for place in Place::each() {
        let limiter = place.limiter("10/s + sliding-window 3/h + fixed-window 100/d");
        let decision = limiter.check_n("k", 4).await.unwrap();
        assert_eq!((decision.denied_by, decision.retry_after, decision.limit), (Some(1), None, 3), "{place}");
        let waits: Vec<_> = decision.limits.iter().map(|limit| limit.retry_after).collect();
        assert_eq!(waits, [Some(Duration::ZERO), None, Some(Duration::ZERO)], "{place}");
        let waited = limiter.acquire("k", 4, Duration::MAX).await.unwrap();
        assert!(!waited.allowed && waited.retry_after.is_none(), "{place}: {waited:?}");
        assert!(limiter.check_n("k", 3).await.unwrap().allowed, "{place}");
    }
}

#[tokio::test]
async fn ar_06_a_denied_call_subtracts_nothing() {
    for place in Place::each() {
        let limiter = place.limiter("10/100s");
        let mut seen = Vec::new();
        for cost in [8, 5, 2, 1_000_000] {
            let decision = limiter.check_n("k", cost).await.unwrap();
            seen.push((decision.allowed, if cost > 10 { 0 } else { decision.remaining }));
        }
        assert_eq!(seen, [(true, 2), (false, 2), (true, 0), (false, 0)], "{place}");
        if let Some(server) = place.server() {
            let ttl = pttl(server, &stored_key(server));
            assert!((95_000..=101_000).contains(&ttl), "{ttl}");
        }
    }
}

#[tokio::test]
async fn ar_06_denied_calls_write_nothing() {
    let place = Place::redis();
    let server = place.server().unwrap();
    for limits in of_each_algorithm("10/20000d") {
        let limiter = place.limiter(&limits);
        assert!(limiter.check_n("k", 8).await.unwrap().allowed);
        let key = stored_key(server);
        let before = (dump(server, &key), pttl(server, &key));
        for cost in [3, 10, 11, 1_000_000] {
            assert!(!limiter.check_n("k", cost).await.unwrap().allowed, "{limits}, {cost}");
        }
        assert_eq!(dump(server, &key), before.0, "{limits}");
        assert!(pttl(server, &key) <= before.1, "{limits}");
        assert_eq!(limiter.reset("k").await.unwrap().remaining, 10, "{limits}");
    }
}

#[tokio::test]
async fn ar_07_polling_faster_than_the_refill_loses_no_fraction() {
    for place in Place::each() {
        for (limits, step, steps, wanted) in
            [("2/s burst 1", 100, 50, 11), ("1/5s", 300, 53, 4), ("7/3s burst 2", 1, 9000, 23)]
        {
            let limiter = place.limiter(limits);
            let mut passed = 0;
            for index in 0..=steps {
                let now = START + Duration::from_millis(step) * index;
                passed += usize::from(check_at(&limiter, now, limits, 1).await.allowed);
            }
            assert_eq!(passed, wanted, "{place}, {limits}");
        }
    }
}

#[tokio::test]
async fn ar_07_a_fraction_of_a_microsecond_is_not_lost() {
    for place in Place::each() {
        let limiter = place.limiter("3/s burst 1");
        let mut now = START;
        for _ in 0..300 {
            let decision = check_at(&limiter, now, "k", 1).await;
            assert!(decision.allowed, "{place}, {:?} after the start", now - START);
            let wait = check_at(&limiter, now, "k", 1).await.retry_after.unwrap();
            assert!(wait <= Duration::from_micros(333_334), "{place}: {wait:?}");
            now += wait;
        }
        assert!(now - START <= 100 * SECOND + Duration::from_micros(300), "{place}: {:?}", now - START);
    }
}

#[tokio::test]
async fn ar_11_a_smaller_window_over_live_state_reads_as_used_up() {
    for place in Place::each() {
        let client = place.client();
        let at = |limits: &str| client.limiter("case", limits).unwrap();
        for algorithm in &ALGORITHMS[1..] {
            let [five, ten, twenty] = [5, 10, 20].map(|count| at(&format!("{algorithm} {count}/60s")));
            assert_eq!(hits_at(&ten, START, algorithm, 8).await, 8);
            let peeked = peek_at(&five, START, algorithm).await;
            assert_eq!((peeked.remaining, peeked.limit, peeked.allowed), (0, 5, false), "{place}, {algorithm}");
            let denied = check_at(&five, START, algorithm, 1).await;
            assert_eq!((denied.allowed, denied.remaining), (false, 0), "{place}, {algorithm}");
            assert!(denied.retry_after.unwrap() <= 120 * SECOND, "{place}, {algorithm}: {denied:?}");
            let raised = peek_at(&twenty, START, algorithm).await;
            assert_eq!((raised.remaining, raised.allowed), (12, true), "{place}, {algorithm}");
        }
    }
}

#[tokio::test]
async fn ar_11_a_token_bucket_keeps_the_time_at_which_it_is_full() {
    for place in Place::each() {
        let client = place.client();
        let at = |limits: &str| client.limiter("case", limits).unwrap();
        assert_eq!(hits_at(&at("10/min"), START, "k", 8).await, 8);
        let (five, two, twenty) = (at("5/min"), at("2/min burst 1"), at("20/min"));
        assert_eq!(peek_at(&five, START, "k").await.remaining, 1, "{place}");
        assert_eq!(peek_at(&two, START, "k").await.remaining, 0, "{place}");
        assert_eq!(peek_at(&twenty, START, "k").await.remaining, 4, "{place}");
        assert_eq!(hits_at(&five, START, "k", 3).await, 1, "{place}");
        // Shrinking and growing in turn yields no token.
        for _ in 0..20 {
            assert!(!check_at(&two, START, "k", 1).await.allowed, "{place}");
            assert!(!check_at(&five, START, "k", 1).await.allowed, "{place}");
        }
        assert!(peek_at(&at("10/min"), START, "k").await.remaining <= 1, "{place}");
    }
}

#[tokio::test]
async fn ar_13_big_numbers_are_counted_to_the_last_digit() {
    for place in Place::each() {
        for limits in ["fixed-window 999999999999999/min", "sliding-window 999999999999999/min"] {
            let limiter = place.limiter(limits);
            let first = check_at(&limiter, START, "k", 1).await;
            assert_eq!((first.limit, first.remaining), (999_999_999_999_999, 999_999_999_999_998), "{place}, {limits}");
            let second = check_at(&limiter, START + SECOND, "k", 999_999_999_999_997).await;
            assert_eq!((second.allowed, second.remaining), (true, 1), "{place}, {limits}");
            let third = check_at(&limiter, START + 2 * SECOND, "k", 2).await;
            assert_eq!((third.allowed, third.remaining), (false, 1), "{place}, {limits}");
        }
        assert_no_scientific_notation(&place);
    }
}

/// Values are binary but for the logs, whose members and scores are text.
fn assert_no_scientific_notation(place: &Place) {
    let Some(server) = place.server() else { return };
    for key in stored_keys(server) {
        let kind: String = server.command(&[b"TYPE".as_slice(), &key]);
        if kind == "zset" {
            let text: Vec<String> = server.command(&[b"ZRANGE".as_slice(), &key, b"0", b"-1", b"WITHSCORES"]);
            assert!(text.iter().all(|field| field.bytes().all(|byte| byte.is_ascii_digit())), "{text:?}");
        }
    }
}

#[test]
fn ar_13_what_cannot_be_exact_is_refused_and_the_largest_that_fits_is_named() {
    for algorithm in ALGORITHMS {
        for count in ["9007199254740993", "98765432198765432198765"] {
            let error = format!("{algorithm} {count}/s").parse::<Limits>().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidLimit, "{algorithm}: {error}");
        }
    }
    for build in [Limit::token_bucket, Limit::sliding_window, Limit::sliding_window_counter, Limit::fixed_window] {
        for period in [7, 1000, 17 * 60_000, 86_400_000].map(Duration::from_millis) {
            let error = build((1 << 53) + 1, period).unwrap_err();
            let named: u64 = error.message().rsplit(' ').next().unwrap().parse().unwrap_or_else(|_| panic!("{error}"));
            if error.message().contains("largest count") {
                assert!(build(named, period).is_ok(), "{period:?}: {error}");
                assert!(build(named + 1, period).is_err(), "{period:?}: {error}");
            }
        }
    }
}

#[test]
fn ar_13_the_largest_burst_that_fits_is_named() {
    for rule in ["123456789/17min", "1/36500d", "1000003/7ms", "7/36499d", "1/ms"] {
        let error = format!("{rule} burst 9007199254740991").parse::<Limit>().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidLimit);
        let named: u64 = error.message().rsplit(' ').next().unwrap().parse().unwrap_or_else(|_| panic!("{error}"));
        let with_burst = |burst: u64| format!("{rule} burst {burst}").parse::<Limit>();
        assert!(with_burst(named).is_ok(), "{rule}: {error}, {:?}", with_burst(named));
        assert!(with_burst(named + 1).is_err(), "{rule}: {error}");
    }
}

#[test]
fn ar_14_zero_is_refused_when_the_limit_is_built() {
    let texts = ["0/s", "10/0s", "0/0s", "10/0ms", "0/d"];
    for text in texts.iter().flat_map(|text| of_each_algorithm(text)).chain(["10/s burst 0".into(), "".into()]) {
        let error = text.parse::<Limits>().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidLimit, "{text:?}");
        let client = Client::open("memory://").unwrap();
        assert_eq!(client.limiter("case", &*text).unwrap_err().kind(), ErrorKind::InvalidLimit, "{text:?}");
    }
    for build in [Limit::token_bucket, Limit::sliding_window, Limit::sliding_window_counter, Limit::fixed_window] {
        for (count, period) in [(0, SECOND), (10, Duration::ZERO), (0, Duration::ZERO), (1, Duration::from_micros(999))]
        {
            assert_eq!(build(count, period).unwrap_err().kind(), ErrorKind::InvalidLimit, "{count}, {period:?}");
        }
    }
    let bucket = Limit::token_bucket(10, SECOND).unwrap();
    assert_eq!(bucket.with_burst(0).unwrap_err().kind(), ErrorKind::InvalidLimit);
    assert_eq!(Limits::try_from([]).unwrap_err().kind(), ErrorKind::InvalidLimit);
}

#[tokio::test]
async fn ar_15_a_cost_of_zero_takes_nothing_and_leaves_the_ttl() {
    for place in Place::each() {
        for limits in of_each_algorithm("5/20000d") {
            let limiter = place.limiter(&limits);
            let fresh = limiter.check_n(&limits, 0).await.unwrap();
            assert_eq!((fresh.allowed, fresh.remaining, fresh.source), (true, 5, Source::Store), "{place}, {limits}");
            assert!(place.server().is_none_or(|server| stored_keys(server).is_empty()), "{limits}");
            assert!(limiter.check_n(&limits, 3).await.unwrap().allowed);
            let state = || place.server().map(|s| (dump(s, &stored_key(s)), expires_at(s, &stored_key(s)) / 10));
            let before = state();
            let decision = limiter.check_n(&limits, 0).await.unwrap();
            assert_eq!((decision.allowed, decision.remaining), (true, 2), "{place}, {limits}");
            assert_eq!(state(), before, "{place}, {limits}");
            assert_eq!(allowed(&limiter, &limits, &[2, 0, 1]).await, [true, true, false], "{place}, {limits}");
            assert_eq!(limiter.reset(&limits).await.unwrap().remaining, 5, "{place}, {limits}");
        }
    }
}

#[tokio::test]
async fn ar_15_a_negative_cost_cast_to_unsigned_reaches_no_server() {
    let place = Place::redis();
    let server = place.server().unwrap();
    let limiter = place.limiter("5/20000d");
    assert!(limiter.check_n("k", 3).await.unwrap().allowed);
    let ((), lines) = Monitor::record_async(server, async {
        for cost in [-1_i64, i64::MIN, -5] {
            assert!(!limiter.check_n("k", cost.cast_unsigned()).await.unwrap().allowed);
        }
        let many = limiter.check_many([("k", u64::MAX), ("other", 6)]).await.unwrap();
        assert!(many.iter().all(|decision| !decision.allowed));
    })
    .await;
    assert!(lines.is_empty(), "{lines:?}");
    assert_eq!(limiter.peek("k").await.unwrap().remaining, 2);
}

#[tokio::test]
async fn ar_15_impossible_costs_among_others_leave_the_others_alone() {
    for place in Place::each() {
        let limiter = place.limiter("5/20000d");
        let decisions = limiter.check_many([("a", 2), ("b", 6), ("a", 3), ("c", u64::MAX), ("d", 5)]).await.unwrap();
        let answers: Vec<_> = decisions.iter().map(|d| (d.allowed, d.remaining, d.source == Source::Limit)).collect();
        let wanted = [(true, 3, false), (false, 5, true), (true, 0, false), (false, 5, true), (true, 0, false)];
        assert_eq!(answers, wanted, "{place}");
    }
}

#[tokio::test]
async fn ar_06_a_denied_call_makes_no_key() {
    let place = Place::redis();
    let server = place.server().unwrap();
    let limiter = place.limiter("10/min");
    CommandStats::reset(server);
    assert!(!limiter.check_n("k", 11).await.unwrap().allowed);
    assert!(stored_keys(server).is_empty());
    assert_eq!(CommandStats::read(server).calls("evalsha") + CommandStats::read(server).calls("eval"), 0);
}

#[tokio::test]
async fn ar_01_the_manual_clock_counts_as_exactly() {
    let clock = ManualClock::new();
    let limiter = patient("memory://").clock(clock.clone()).build().unwrap().limiter("case", "1000000/s").unwrap();
    assert!(limiter.check_n("k", 1_000_000).await.unwrap().allowed);
    clock.advance(12 * 3600 * SECOND);
    assert_eq!(limiter.check("k").await.unwrap().remaining, 999_999);
}
