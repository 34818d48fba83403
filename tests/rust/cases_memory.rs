//! Field cases MM: floods of keys, and logs so long that they stalled the server.

use std::time::Duration;

use grifo::testing::{ManualClock, Operation, decide_at};
use grifo::{Client, FailurePolicy, Limiter, Source};
use grifo_tests::case::{
    Place, check_at, eventually, of_each_algorithm, patient, peek_at, refund_at, server_time, stored_keys,
};
use grifo_tests::{CommandStats, Monitor, Server};

const HITS: u64 = 70_000;

async fn flood(limiter: &Limiter, keys: usize) {
    let keys: Vec<_> = (0..keys).map(|index| (format!("2001:db8::{index:x}"), 1)).collect();
    for part in keys.chunks(10_000) {
        let calls = part.iter().map(|(key, cost)| (key, *cost));
        assert!(limiter.check_many(calls).await.unwrap().iter().all(|decision| decision.allowed));
    }
}

#[tokio::test]
async fn mm_02_a_flood_of_keys_resets_nobody_in_memory() {
    for limits in of_each_algorithm("5/20000d") {
        let client = patient("memory://").max_keys(1000).build().unwrap();
        let limiter = client.limiter("case", &*limits).unwrap();
        let victims: Vec<String> = (0..20).map(|index| format!("victim {index}")).collect();
        for victim in &victims {
            assert!(limiter.check_n(victim, 5).await.unwrap().allowed);
        }
        flood(&limiter, 10_000).await;
        for victim in &victims {
            assert!(!limiter.check(victim).await.unwrap().allowed, "{limits}: {victim} was forgotten");
        }
    }
}

#[tokio::test]
async fn mm_02_a_flood_of_keys_resets_nobody_in_the_fallback() {
    let client = Client::builder("redis://127.0.0.1:1").on_failure(FailurePolicy::Local).max_keys(300).build().unwrap();
    let limiter = client.limiter("case", "5/20000d").unwrap();
    let victim = limiter.check_n("victim", 5).await.unwrap();
    assert_eq!((victim.allowed, victim.source), (true, Source::Fallback));
    flood(&limiter, 3000).await;
    let decision = limiter.check("victim").await.unwrap();
    assert_eq!((decision.allowed, decision.source), (false, Source::Fallback));
}

#[tokio::test]
async fn mm_02_keys_that_are_as_new_make_room_first() {
    let clock = ManualClock::new();
    let client = patient("memory://").max_keys(1000).clock(clock.clone()).build().unwrap();
    let (short, long) = (client.limiter("short", "5/s").unwrap(), client.limiter("long", "5/20000d").unwrap());
    let lasting: Vec<String> = (0..300).map(|index| format!("lasting {index}")).collect();
    for key in &lasting {
        assert!(long.check(key).await.unwrap().allowed);
    }
    for _ in 0..10 {
        flood(&short, 600).await;
        clock.advance(Duration::from_secs(2));
    }
    for key in &lasting {
        assert_eq!(long.peek(key).await.unwrap().remaining, 4, "{key} was forgotten");
    }
}

/// What calls of a script cost the server, in microseconds.
#[derive(Debug)]
struct Costs {
    quarter: f64,
    median: f64,
    most: f64,
}

/// What some calls cost the server, as it has measured itself.
async fn costs(server: &Server, what: &str, calls: impl Future<Output = ()>) -> Costs {
    server.command::<(), _>(&["CONFIG", "SET", "latency-tracking-info-percentiles", "25 50 95 100"]);
    CommandStats::reset(server);
    calls.await;
    let stats = CommandStats::read(server);
    let info: String = server.command(&["INFO", "latencystats"]);
    let percentiles = |name: &str| {
        let line = info.lines().find_map(|line| line.strip_prefix(&*format!("latency_percentiles_usec_{name}:")))?;
        let number = |part: &str| part.trim().split('=').nth(1)?.parse().ok();
        let [quarter, median, most, worst] = line.split(',').filter_map(number).collect::<Vec<f64>>()[..] else {
            panic!("{line}");
        };
        Some((Costs { quarter, median, most }, worst, stats.of(name)))
    };
    let (costs, worst, stat) = percentiles("evalsha").or_else(|| percentiles("evalsha_ro")).expect("calls");
    println!(
        "{what:<30} {:>4} calls, mean {:>5.1} µs, worst {worst:>5.1} µs, {costs:?}",
        stat.calls, stat.usec_per_call
    );
    costs
}

/// Until the server has freed, in the background, what was unlinked.
async fn freed(server: &Server) {
    let pending = || server.command::<String, _>(&["INFO", "memory"]).contains("lazyfree_pending_objects:0\r");
    eventually("nothing left to free", Duration::from_secs(5), async || pending()).await;
}

/// A log of many hits, each at a time of its own: the first call, with other times and costs.
async fn fill(server: &Server, limiter: &Limiter, start: Duration, cost: fn(u64) -> u64) {
    let (decision, lines) = Monitor::record_async(server, check_at(limiter, start, "full", cost(0))).await;
    assert!(decision.allowed);
    let call = lines.iter().find(|line| line.name() == "EVALSHA").unwrap();
    let time = call.args.iter().position(|arg| *arg == start.as_micros().to_string().as_bytes()).unwrap();
    let [before, middle, after] =
        [&call.args[1..time], &call.args[time + 1..call.args.len() - 2], &call.args[call.args.len() - 1..]];
    let mut connection = server.connection().unwrap();
    let later: Vec<u64> = (1..HITS).collect();
    for part in later.chunks(1000) {
        let mut pipeline = redis::pipe();
        for index in part {
            let now = (start + Duration::from_millis(*index)).as_micros().to_string();
            pipeline.cmd("EVALSHA").arg(before).arg(now).arg(middle).arg(cost(*index)).arg(after).ignore();
        }
        pipeline.exec(&mut connection).unwrap();
    }
    assert_eq!(peek_at(limiter, start + Duration::from_millis(HITS), "full").await.remaining, 0);
    assert_eq!(server.command::<u64, _>(&[b"ZCARD".as_slice(), &stored_keys(server)[0]]), HITS);
}

/// Copies the full log to the places of other keys, each of which has been hit once.
async fn copies(server: &Server, limiter: &Limiter, start: Duration, count: usize) -> Vec<String> {
    let full = stored_keys(server).remove(0);
    let keys: Vec<String> = (0..count).map(|index| format!("copy {index}")).collect();
    for key in &keys {
        assert!(check_at(limiter, start, key, 1).await.allowed);
        let ending = format!(":={key}").into_bytes();
        let stored = stored_keys(server).into_iter().find(|stored| stored.ends_with(&ending)).unwrap();
        server.command::<i64, _>(&[b"COPY".as_slice(), &full, &stored, b"REPLACE"]);
    }
    keys
}

const DAY: Duration = Duration::from_secs(86_400);
/// The bound of the case, in microseconds.
const BOUND: f64 = 200.0;

/// Calls stay below the bound but for what a busy machine adds. One that goes through the log takes many times as long.
fn stays_small(costs: &Costs, what: &str) {
    assert!(costs.quarter < 2.0 * BOUND && costs.median < 4.0 * BOUND, "{what}: {costs:?}");
    assert!(costs.most < 20.0 * BOUND, "{what}: {costs:?}");
}

#[tokio::test]
async fn mm_04_a_long_log_costs_as_much_as_a_short_one() {
    let place = Place::redis();
    let server = place.server().unwrap();
    if server.version().0 < 7 {
        println!("{place} does not say how long single calls took");
        return;
    }
    let limiter = place.limiter("sliding-window 70000/d");
    let start = server_time(server);
    fill(server, &limiter, start, |_| 1).await;
    let copies = copies(server, &limiter, start, 8).await;
    let now = start + Duration::from_millis(HITS);

    let short = costs_of_a_short_log(&place, now).await;
    let denied = costs(server, "denied hit, costs 1 to 70000", async {
        for index in 0..300 {
            assert!(!check_at(&limiter, now, "full", 1 + index * 233).await.allowed);
        }
    })
    .await;
    let peek = costs(server, "peek", async {
        for _ in 0..300 {
            assert!(!peek_at(&limiter, now, "full").await.allowed);
        }
    })
    .await;
    let refund = costs(server, "refund of 1 to 5, and hit", async {
        for index in 0..150 {
            let n = 1 + index % 5;
            assert_eq!(refund_at(&limiter, now, "full", n).await.remaining, n);
            assert!(check_at(&limiter, now + Duration::from_micros(index + 1), "full", n).await.allowed);
        }
    })
    .await;
    let pruning = costs(server, "hit that prunes", async {
        let half = start + DAY + Duration::from_secs(35);
        for index in 0..300 {
            assert!(check_at(&limiter, half + Duration::from_micros(index), "full", 1).await.allowed);
        }
    })
    .await;
    let expired = costs(server, "hit after all expired", async {
        for key in &copies {
            assert!(check_at(&limiter, start + 3 * DAY, key, 1).await.allowed);
            freed(server).await;
        }
    })
    .await;
    // A search of 70,000 takes 17 look-ups where one of 100 takes 7.
    assert!(denied.quarter < 2.0 * short.quarter + 50.0, "{denied:?} against {short:?}");
    for (costs, what) in [(&denied, "denied"), (&peek, "peek"), (&refund, "refund"), (&pruning, "pruning")] {
        stays_small(costs, what);
    }
    // No more, since a server that shares one heap among its threads waits for the one that frees.
    assert!(expired.quarter < 5.0 * BOUND, "{expired:?}");
}

/// Costs that tell little of where in a log a count is reached: the first half costs 1 a hit, the second 1 to 5.
fn uneven(index: u64) -> u64 {
    if index < HITS / 2 { 1 } else { 1 + index % 5 }
}

#[tokio::test]
async fn mm_04_a_long_log_of_uneven_costs_is_searched_as_fast() {
    let place = Place::redis();
    let server = place.server().unwrap();
    if server.version().0 < 7 {
        println!("{place} does not say how long single calls took");
        return;
    }
    let total: u64 = (0..HITS).map(uneven).sum();
    let limiter = place.limiter(&format!("sliding-window {total}/d"));
    let start = server_time(server);
    fill(server, &limiter, start, uneven).await;
    let now = start + Duration::from_millis(HITS);
    let denied = costs(server, "denied hit, uneven log", async {
        for index in 0..300 {
            let cost = 1 + index * total / 300;
            let decision = check_at(&limiter, now, "full", cost).await;
            // The wait until the hit with which the count is reached no longer counts.
            let mut counted = 0;
            let reaching = (0..HITS).find(|index| {
                counted += uneven(*index);
                counted >= cost
            });
            let wait = DAY - Duration::from_millis(HITS - reaching.unwrap());
            assert_eq!((decision.allowed, decision.retry_after), (false, Some(wait)));
        }
    })
    .await;
    stays_small(&denied, "denied");
}

/// The same calls on a log of 100 hits.
async fn costs_of_a_short_log(place: &Place, now: Duration) -> Costs {
    let limiter = place.client().limiter("short", "sliding-window 100/d").unwrap();
    for index in 0..100 {
        assert!(check_at(&limiter, now + Duration::from_micros(index), "k", 1).await.allowed);
    }
    costs(place.server().unwrap(), "denied hit of a short log", async {
        for index in 0..300 {
            assert!(!check_at(&limiter, now + Duration::from_millis(1), "k", 1 + index % 100).await.allowed);
        }
    })
    .await
}

#[tokio::test]
async fn mm_04_a_log_keeps_no_more_hits_than_its_limit_needs() {
    let place = Place::redis();
    let server = place.server().unwrap();
    let limiter = place.limiter("sliding-window 50/s");
    let start = server_time(server);
    for index in 0..400_u32 {
        let now = start + Duration::from_millis(20) * index;
        assert!(check_at(&limiter, now, "k", 1).await.allowed);
        assert!(!check_at(&limiter, now, "k", 50).await.allowed);
    }
    let hits: usize = server.command(&[b"ZCARD".as_slice(), &stored_keys(server)[0]]);
    assert!(hits <= 51, "{hits} hits are kept of 50 that count");
}

#[tokio::test]
async fn mm_04_hits_of_one_moment_are_one_entry() {
    let place = Place::redis();
    let limiter = place.limiter("sliding-window 5000/d");
    let now = Duration::from_secs(1_800_000_000);
    for _ in 0..10 {
        let entries = vec![(&limiter, b"k".as_slice(), 1); 500];
        assert!(decide_at(Operation::Check, now, &entries).await.unwrap().iter().all(|decision| decision.allowed));
    }
    let server = place.server().unwrap();
    assert_eq!(server.command::<u64, _>(&[b"ZCARD".as_slice(), &stored_keys(server)[0]]), 1);
}
