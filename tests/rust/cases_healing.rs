//! Values under a key of ours that are not ours, or that lost their TTL: one of many heals, and the others do not notice.

use std::time::Duration;

use grifo::{Algorithm, Client, Limiter};
use grifo_tests::case::{Place, START, check_at, hits_at, of_each_algorithm, pttl, refund_at, stored_keys};
use grifo_tests::{Server, ServerKind, server_binary};

const DAMAGES: [&str; 11] = [
    "list",
    "hash",
    "set",
    "stream",
    "text",
    "empty",
    "right length",
    "number",
    "log of words",
    "log of halves",
    "TTL",
];

/// Replaces what is stored under a key, with a TTL unless that is what is damaged.
fn damage(server: &Server, key: &[u8], how: &str) {
    let run = |words: &[&[u8]]| server.command::<redis::Value, _>(words);
    let length = if how == "right length" { server.command(&[b"STRLEN".as_slice(), key]) } else { 0 };
    if how != "TTL" {
        run(&[b"DEL", key]);
    }
    match how {
        "list" => run(&[b"RPUSH", key, b"x"]),
        "hash" => run(&[b"HSET", key, b"x", b"1"]),
        "set" => run(&[b"SADD", key, b"x"]),
        "stream" => run(&[b"XADD", key, b"*", b"x", b"1"]),
        "text" => run(&[b"SET", key, b"garbage"]),
        "empty" => run(&[b"SET", key, b""]),
        "right length" => run(&[b"SET", key, &vec![0xff_u8; length]]),
        "number" => run(&[b"SET", key, b"12345"]),
        "log of words" => run(&[b"ZADD", key, b"1", b"x", b"2", b"1:2", b"3", b"-1"]),
        "log of halves" => run(&[b"ZADD", key, b"1.5", b"2.5"]),
        _ => run(&[b"PERSIST", key]),
    };
    if how != "TTL" {
        run(&[b"PEXPIRE", key, b"600000"]);
    }
}

/// The stored key whose caller's key is `key`.
fn stored_key_of(server: &Server, key: &str) -> Vec<u8> {
    let ending = format!(":={key}").into_bytes();
    let mut found: Vec<_> = stored_keys(server).into_iter().filter(|stored| stored.ends_with(&ending)).collect();
    assert_eq!(found.len(), 1, "{key}: {found:?}");
    found.remove(0)
}

async fn heals_among_others(server: &Server, client: &Client, limiter: &Limiter, how: &str) {
    let what = format!("{}, {}, {how}", server.kind(), limiter.limits());
    let keys = ["one", "bad", "two", "three"];
    assert!(limiter.check_many(keys.map(|key| (key, 3))).await.unwrap().iter().all(|d| d.remaining == 7), "{what}");
    let bad = stored_key_of(server, "bad");
    damage(server, &bad, how);
    let before = client.stats().healed;
    let peeked = limiter.peek("bad").await.unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!((peeked.remaining, client.stats().healed), (10, before), "{what}");
    // A bucket from which something is taken is given its TTL by that, whether it had one or not.
    let is_healed = how != "TTL" || limiter.limits().as_slice()[0].algorithm() != Algorithm::TokenBucket;
    let (healed, more) = if is_healed { (before + 1, 3) } else { (before, 0) };
    let decisions = limiter.check_many(keys.map(|key| (key, 2))).await.unwrap_or_else(|e| panic!("{what}: {e}"));
    let left: Vec<u64> = decisions.iter().map(|decision| decision.remaining).collect();
    assert_eq!(left, [5, 5 + more, 5, 5], "{what}");
    assert_eq!(client.stats().healed, healed, "{what}");
    assert!(pttl(server, &bad) > 0, "{what}");
    let again = limiter.check_many(keys.map(|key| (key, 1))).await.unwrap();
    assert_eq!(again.iter().map(|decision| decision.remaining).collect::<Vec<_>>(), [4, 4 + more, 4, 4], "{what}");
    assert_eq!(client.stats().healed, healed, "{what}");
    for key in keys {
        assert_eq!(limiter.reset(key).await.unwrap().remaining, 10, "{what}");
    }
    assert!(stored_keys(server).is_empty(), "{what}");
}

async fn heals_on(kind: ServerKind) {
    if server_binary::find(kind).is_none() {
        println!("{kind} is not installed here");
        return;
    }
    let place = Place::on(Server::start(kind));
    let server = place.server().unwrap();
    let client = place.client();
    for limits in of_each_algorithm("10/20000d") {
        let limiter = client.limiter("case", &*limits).unwrap();
        let is_log = limits.starts_with("sliding-window ");
        for how in DAMAGES.into_iter().filter(|how| !(is_log && *how == "right length")) {
            heals_among_others(server, &client, &limiter, how).await;
        }
    }
}

#[tokio::test]
async fn dg_07_one_bad_key_of_many_heals_on_valkey_9_1() {
    heals_on(ServerKind::Valkey91).await;
}

#[tokio::test]
async fn dg_07_one_bad_key_of_many_heals_on_redis_6_2() {
    heals_on(ServerKind::Redis62).await;
}

#[tokio::test]
async fn dg_07_one_bad_key_of_many_heals_on_redis_7_0() {
    heals_on(ServerKind::Redis70).await;
}

#[tokio::test]
async fn dg_07_one_bad_key_of_many_heals_on_redis_8_2() {
    heals_on(ServerKind::Redis82).await;
}

#[tokio::test]
async fn dg_07_refund_and_reset_heal_a_bad_key_too() {
    let place = Place::redis();
    let server = place.server().unwrap();
    let client = place.client();
    for limits in of_each_algorithm("10/20000d") {
        let limiter = client.limiter("case", &*limits).unwrap();
        for how in DAMAGES {
            for refund in [true, false] {
                assert!(limiter.check_n("bad", 3).await.unwrap().allowed);
                let key = stored_key_of(server, "bad");
                if how == "right length" && limits.starts_with("sliding-window ") {
                    damage(server, &key, "text");
                } else {
                    damage(server, &key, how);
                }
                let before = client.stats().healed;
                let answer = if refund { limiter.refund("bad", 1).await } else { limiter.reset("bad").await };
                assert_eq!(answer.unwrap().remaining, 10, "{limits}, {how}");
                assert_eq!(client.stats().healed, before + 1, "{limits}, {how}");
                assert!(stored_keys(server).is_empty(), "{limits}, {how}");
            }
        }
    }
}

#[tokio::test]
async fn dg_07_one_bad_limit_of_a_set_heals_and_the_others_are_charged_once() {
    let place = Place::redis();
    let server = place.server().unwrap();
    let client = place.client();
    let set =
        "token-bucket 10/20000d + sliding-window 11/20000d + sliding-window-counter 12/20000d + fixed-window 13/20000d";
    let limiter = client.limiter("case", set).unwrap();
    for index in 0..4 {
        assert!(limiter.check_n("bad", 3).await.unwrap().allowed);
        let letter = [":1t:", ":1l:", ":1c:", ":1f:"][index];
        let key = stored_keys(server).into_iter().find(|key| String::from_utf8_lossy(key).contains(letter)).unwrap();
        damage(server, &key, "list");
        let decision = limiter.check("bad").await.unwrap();
        let mut wanted = [6, 7, 8, 9];
        wanted[index] += 3;
        assert_eq!(decision.limits.iter().map(|limit| limit.remaining).collect::<Vec<_>>(), wanted, "{letter}");
        assert_eq!(client.stats().healed, index as u64 + 1, "{letter}");
        assert_eq!(limiter.reset("bad").await.unwrap().remaining, 10, "{letter}");
    }
}

#[tokio::test]
async fn dg_07_a_bad_key_hit_often_leaves_the_others_alone() {
    let place = Place::redis();
    let server = place.server().unwrap();
    let limiter = place.limiter("10/20000d");
    assert!(limiter.check("bad").await.unwrap().allowed);
    let key = stored_key_of(server, "bad");
    for _ in 0..200 {
        damage(server, &key, "list");
        let decision = limiter.check("bad").await.unwrap();
        assert!(decision.allowed && !decision.degraded() && decision.remaining == 9, "{decision:?}");
        limiter.check("").await.unwrap_err();
    }
    assert!(!limiter.check("other").await.unwrap().degraded());
}

/// A log of ten hits, a tenth of a second apart, with one unreadable member in its middle.
async fn log_with_a_bad_middle(server: &Server, limiter: &Limiter) {
    for index in 0..10 {
        assert!(check_at(limiter, START + index * Duration::from_millis(100), "bad", 1).await.allowed);
    }
    let key = stored_key_of(server, "bad");
    let members: Vec<(Vec<u8>, Vec<u8>)> = server.command(&[b"ZRANGE".as_slice(), &key, b"5", b"5", b"WITHSCORES"]);
    let (member, score) = &members[0];
    server.command::<(), _>(&[b"ZREM".as_slice(), &key, member]);
    server.command::<(), _>(&[b"ZADD".as_slice(), &key, score, b"garbage"]);
}

#[tokio::test]
async fn dg_07_a_log_that_is_unreadable_in_the_middle_heals_in_the_end() {
    let place = Place::redis();
    let server = place.server().unwrap();
    let client = place.client();
    let limiter = client.limiter("case", "sliding-window 10/min").unwrap();
    let now = START + Duration::from_secs(1);
    for n in 1..10 {
        log_with_a_bad_middle(server, &limiter).await;
        let left = refund_at(&limiter, now, "bad", n).await.remaining;
        assert!(left >= n, "{left} after a refund of {n}");
        assert!(hits_at(&limiter, now, "bad", 20).await <= 10);
        assert_eq!(limiter.reset("bad").await.unwrap().remaining, 10);
    }
    for cost in 1..=10 {
        log_with_a_bad_middle(server, &limiter).await;
        let decision = check_at(&limiter, now, "bad", cost).await;
        assert!(!decision.degraded(), "cost {cost}");
        assert_eq!(limiter.reset("bad").await.unwrap().remaining, 10);
    }
}
