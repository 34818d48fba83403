//! Field cases TT: keys that lived for ever, or not long enough.

use std::time::Duration;

use grifo::Decision;
use grifo_tests::Server;
use grifo_tests::case::{
    ALGORITHMS, Place, START, check_at, expires_at, hits_at, of_each_algorithm, patient, pttl, server_time, stored_key,
    stored_keys,
};

#[tokio::test]
async fn tt_01_a_key_that_lost_its_ttl_gets_one_again() {
    let place = Place::redis();
    let server = place.server().unwrap();
    let client = place.client();
    for limits in of_each_algorithm("3/s") {
        let limiter = client.limiter("case", &*limits).unwrap();
        for _ in 0..4 {
            assert!(!limiter.check(&limits).await.unwrap().degraded());
        }
    }
    for key in stored_keys(server) {
        assert_eq!(server.command::<i64, _>(&[b"PERSIST".as_slice(), &key]), 1);
        assert_eq!(pttl(server, &key), -1);
    }
    tokio::time::sleep(Duration::from_millis(1200)).await;
    for limits in of_each_algorithm("3/s") {
        let decision = client.limiter("case", &*limits).unwrap().check(&limits).await.unwrap();
        assert_eq!((decision.allowed, decision.remaining), (true, 2), "{limits}");
    }
    let ttls: Vec<i64> = stored_keys(server).iter().map(|key| pttl(server, key)).collect();
    assert_eq!(ttls.len(), ALGORITHMS.len());
    assert!(ttls.iter().all(|ttl| (1..=3000).contains(ttl)), "{ttls:?}");
    assert_eq!(client.stats().healed, 4);
}

#[tokio::test]
async fn tt_01_an_immortal_key_heals_at_once_whatever_is_asked() {
    let place = Place::redis();
    let server = place.server().unwrap();
    let client = place.client();
    for limits in of_each_algorithm("3/20000d") {
        let limiter = client.limiter("case", &*limits).unwrap();
        let persist = async || {
            assert!(limiter.check_n("k", 3).await.unwrap().allowed);
            server.command::<i64, _>(&[b"PERSIST".as_slice(), &stored_key(server)]);
        };
        persist().await;
        assert_eq!(limiter.peek("k").await.unwrap().remaining, 3, "{limits}");
        assert_eq!(pttl(server, &stored_key(server)), -1, "{limits}: a peek writes nothing");
        assert_eq!(limiter.check_n("k", 0).await.unwrap().remaining, 3, "{limits}");
        assert!(stored_keys(server).is_empty(), "{limits}");
        persist().await;
        assert_eq!(limiter.check_n("k", 1).await.unwrap().remaining, 2, "{limits}: a denial looks closer");
        assert!(pttl(server, &stored_key(server)) > 0, "{limits}");
        let _ = limiter.reset("k").await.unwrap();
        persist().await;
        assert_eq!(limiter.refund("k", 1).await.unwrap().remaining, 3, "{limits}");
        assert!(stored_keys(server).is_empty(), "{limits}");
        persist().await;
        assert_eq!(limiter.reset("k").await.unwrap().remaining, 3, "{limits}");
        assert!(stored_keys(server).is_empty(), "{limits}");
    }
}

#[tokio::test]
async fn tt_03_a_bucket_outlives_its_refill() {
    let place = Place::redis();
    let server = place.server().unwrap();
    let limiter = place.limiter("3/6s");
    for _ in 0..3 {
        assert!(limiter.check("k").await.unwrap().allowed);
    }
    // The key is as new six seconds after the first hit, a moment ago.
    assert!(pttl(server, &stored_key(server)) >= 5900);
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(limiter.check("k").await.unwrap().allowed);
    assert!(!limiter.check("k").await.unwrap().allowed);
}

#[tokio::test]
async fn tt_04_the_previous_window_is_there_until_it_no_longer_counts() {
    for place in Place::each() {
        let limiter = place.limiter("sliding-window-counter 10/2s");
        assert_eq!(hits_at(&limiter, START, "k", 10).await, 10);
        assert_eq!(hits_at(&limiter, START + Duration::from_millis(3400), "k", 30).await, 7, "{place}");
        assert_eq!(hits_at(&limiter, START + Duration::from_millis(3999), "k", 30).await, 2, "{place}");
    }
    let place = Place::redis();
    let server = place.server().unwrap();
    let limiter = place.limiter("sliding-window-counter 10/2s");
    let before = server_time(server);
    assert!(limiter.check_n("k", 10).await.unwrap().allowed);
    let second_window_ends = (before.as_millis() / 2000 + 2) * 2000;
    assert!(expires_at(server, &stored_key(server)) + 2 >= i64::try_from(second_window_ends).unwrap());
}

/// The TTL of the only key is at least what is left of `reset_after`, and at most a second more.
fn ttl_fits(server: &Server, before: Duration, decision: &Decision, what: &str) {
    let after = server_time(server);
    for key in stored_keys(server) {
        let expires = Duration::from_millis(u64::try_from(expires_at(server, &key)).unwrap());
        let rounding = Duration::from_millis(2);
        assert!(expires + rounding >= before + decision.reset_after, "{what}: {expires:?}, {before:?}, {decision:?}");
        let latest = after + decision.reset_after + Duration::from_secs(1) + rounding;
        assert!(expires <= latest, "{what}: {expires:?}, {after:?}, {decision:?}");
    }
}

#[tokio::test]
async fn tt_03_every_key_lives_until_it_is_as_new_and_a_second_longer_at_most() {
    let place = Place::redis();
    let server = place.server().unwrap();
    let client = place.client();
    for rule in ["7/300ms", "7/3s", "1000/h", "7/30d", "7/20000d"] {
        for limits in of_each_algorithm(rule) {
            let limiter = client.limiter("case", &*limits).unwrap();
            for cost in [1, 2, 0, 7] {
                let before = server_time(server);
                let decision = limiter.check_n("k", cost).await.unwrap();
                ttl_fits(server, before, &decision, &format!("{limits}, check of {cost}"));
            }
            let before = server_time(server);
            let decision = limiter.refund("k", 1).await.unwrap();
            ttl_fits(server, before, &decision, &format!("{limits}, refund"));
            assert_eq!(limiter.reset("k").await.unwrap().remaining, limiter.limits().as_slice()[0].capacity());
            assert!(stored_keys(server).is_empty(), "{limits}");
        }
    }
}

#[tokio::test]
async fn tt_03_each_limit_of_a_set_has_the_ttl_it_needs() {
    let place = Place::redis();
    let server = place.server().unwrap();
    let limiter = place.limiter("10/s + sliding-window 100/min + fixed-window 1000/h + sliding-window-counter 9/d");
    let before = server_time(server);
    let decision = limiter.check_n("k", 5).await.unwrap();
    let after = server_time(server);
    let keys = stored_keys(server);
    assert_eq!(keys.len(), 4);
    let mut expiries: Vec<i64> = keys.iter().map(|key| expires_at(server, key)).collect();
    let mut resets: Vec<Duration> = decision.limits.iter().map(|limit| limit.reset_after).collect();
    expiries.sort_unstable();
    resets.sort_unstable();
    for (expiry, reset) in expiries.iter().zip(resets) {
        let earliest = i64::try_from((before + reset).as_millis()).unwrap() - 2;
        let latest = i64::try_from((after + reset).as_millis()).unwrap() + 1003;
        assert!((earliest..=latest).contains(expiry), "{expiry}, not {earliest} to {latest}");
    }
}

#[tokio::test]
async fn tt_01_a_key_judged_at_a_given_time_has_a_ttl_too() {
    let place = Place::redis();
    let server = place.server().unwrap();
    for limits in of_each_algorithm("3/s") {
        let limiter = place.limiter(&limits);
        assert!(check_at(&limiter, START, &limits, 1).await.allowed);
        assert!(!check_at(&limiter, Duration::from_secs(1), &limits, 3).await.allowed);
    }
    for key in stored_keys(server) {
        assert!((1..=610_000).contains(&pttl(server, &key)), "{}", pttl(server, &key));
    }
}

#[tokio::test]
async fn tt_01_a_ping_leaves_no_immortal_key_whatever_the_user_may_not_do() {
    let server = Server::start_default();
    let url = server.url().replace("redis://", "redis://app:secret@");
    for denied in ["-pexpire", "-zremrangebyrank", "-unlink", "-set", "-zadd"] {
        for other in ["-pexpire", "-zremrangebyrank", "-unlink"] {
            server.command::<(), _>(&["ACL", "SETUSER", "app", "reset", "on", ">secret", "~*", "+@all", denied, other]);
            let pong = patient(&url).build().unwrap().ping().await.unwrap();
            assert!(!pong.lacking.is_empty());
            for key in stored_keys(&server) {
                assert_ne!(pttl(&server, &key), -1, "{denied} {other}: {}", String::from_utf8_lossy(&key));
            }
        }
    }
}
