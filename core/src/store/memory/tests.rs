use std::time::Duration;

use super::shard::EXPIRIES_KEPT;
use super::*;
use crate::limit::Limit;
use crate::store::Answer;
use crate::testing::ManualClock;

fn store(max_keys: usize) -> (MemoryStore, ManualClock) {
    let clock = ManualClock::new();
    (MemoryStore::new(max_keys, Arc::new(clock.clone())), clock)
}

fn len(store: &MemoryStore) -> usize {
    store.shards.iter().map(|shard| lock(shard).len()).sum()
}

fn call(store: &MemoryStore, operation: Operation, limit: &str, key: &str, amount: u64) -> Answer {
    let limits = Arc::new(limit.parse().unwrap());
    let entry = Entry { limiter: "api", limits: &limits, key: key.as_bytes(), amount };
    store.decide_now(operation, &entry, None).answer
}

fn check(store: &MemoryStore, limit: &str, key: &str) -> bool {
    call(store, Operation::Check, limit, key, 1).allowed
}

const LIMITS: [&str; 4] = ["5/min", "sliding-window 5/min", "sliding-window-counter 5/min", "fixed-window 5/min"];

#[test]
fn mm_02_a_flood_of_keys_does_not_reset_one_that_is_used_up() {
    for limit in LIMITS {
        for max_keys in [300, 10_000] {
            let (store, _clock) = store(max_keys);
            (0..5).for_each(|_| assert!(check(&store, limit, "victim")));
            (0..3 * max_keys).for_each(|number| assert!(check(&store, limit, &format!("flood {number}"))));
            assert!(!check(&store, limit, "victim"), "{limit}");
            assert!(len(&store) <= max_keys.next_multiple_of(store.shards.len()), "{limit}");
        }
    }
}

#[test]
fn keys_that_are_as_new_go_before_any_that_is_not() {
    let (store, clock) = store(256);
    (0..128).for_each(|number| assert!(check(&store, "5/s", &format!("short {number}"))));
    (0..128).for_each(|number| assert!(check(&store, "5/h", &format!("long {number}"))));
    clock.advance(Duration::from_secs(1));
    (0..128).for_each(|number| assert!(check(&store, "5/min", &format!("new {number}"))));
    let remaining = |number: u32| {
        let answer = call(&store, Operation::Peek, "5/h", &format!("long {number}"), 1);
        answer.readings[0][0]
    };
    assert!((0..128).all(|number| remaining(number) > 0), "a key that counts was let go while expired ones were there");
}

#[test]
fn a_key_that_was_used_again_does_not_count_as_expired() {
    let (store, clock) = store(256);
    (0..256).for_each(|number| assert!(check(&store, "fixed-window 2/s", &format!("key {number}"))));
    clock.advance(Duration::from_secs(1));
    (0..255).for_each(|number| assert!(check(&store, "fixed-window 2/s", &format!("key {number}"))));
    assert!(check(&store, "fixed-window 2/s", "new"));
    let used =
        |number: u32| call(&store, Operation::Peek, "fixed-window 2/s", &format!("key {number}"), 1).readings[0][0];
    assert!((0..255).all(|number| used(number) == 1), "only the key that was not used again may go");
}

#[test]
fn the_list_of_expiries_is_bounded_too() {
    let (store, _clock) = store(256);
    (0..5000).for_each(|number| assert!(check(&store, "5/d", &format!("key {number}"))));
    assert!(store.shards.iter().all(|shard| lock(shard).expiries() <= 2 * 256 + 1));
}

#[test]
fn refund_and_reset_leave_nothing_behind() {
    for limit in LIMITS {
        let (store, _clock) = store(10);
        call(&store, Operation::Refund, limit, "key", 3);
        assert_eq!(len(&store), 0, "{limit}");
        assert!(check(&store, limit, "key"));
        call(&store, Operation::Refund, limit, "key", 1);
        assert_eq!(len(&store), 0, "{limit}");
        assert!(check(&store, limit, "key"));
        call(&store, Operation::Reset, limit, "key", 0);
        assert_eq!(len(&store), 0, "{limit}");
    }
}

#[test]
fn a_denied_key_is_not_stored() {
    let (store, _clock) = store(10);
    assert!(!call(&store, Operation::Check, "5/min", "key", 6).allowed);
    assert!(call(&store, Operation::Check, "5/min", "key", 0).allowed);
    assert!(call(&store, Operation::Peek, "5/min", "key", 1).allowed);
    assert_eq!(len(&store), 0);
}

#[test]
fn cc_01_many_threads_admit_exactly_the_limit() {
    for limit in ["100/d", "sliding-window 100/d", "sliding-window-counter 100/d", "fixed-window 100/d"] {
        let (store, _clock) = store(10);
        let admitted: usize = std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..8).map(|_| scope.spawn(|| (0..50).filter(|_| check(&store, limit, "key")).count())).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(admitted, 100, "{limit}");
    }
}

#[test]
fn a_key_heals_once_when_the_clock_steps_back_and_not_otherwise() {
    let (store, _clock) = store(10);
    for limit in LIMITS {
        let limits = Arc::new(limit.parse().unwrap());
        let entry = Entry { limiter: "api", limits: &limits, key: b"key", amount: 5 };
        let start = 1_800_000_000_000_000;
        let healed = |operation, now| store.decide_now(operation, &entry, Some(now)).healed;
        assert_eq!(healed(Operation::Check, start), 0, "{limit}: nothing was there");
        assert_eq!(healed(Operation::Check, start), 0, "{limit}: the clock stands still, and nothing is left");
        assert_eq!(healed(Operation::Check, start + 1), 0, "{limit}: the clock goes on");
        let earlier = start - 120_000_000;
        assert_eq!(healed(Operation::Peek, earlier), 0, "{limit}: a peek writes nothing");
        assert_eq!(healed(Operation::Check, earlier), 1, "{limit}: the clock stepped back");
        assert_eq!(healed(Operation::Check, earlier), 0, "{limit}: the cut was written");
        assert_eq!(healed(Operation::Refund, earlier - 120_000_000), 1, "{limit}: a refund heals too");
    }
}

#[test]
fn the_sums_of_a_log_stay_exact_however_long_it_lives() {
    let limit: Limit = "sliding-window 9007199254740991/s".parse().unwrap();
    let half = limit.capacity() / 2;
    let (store, clock) = store(10);
    // Two halves fill the window; after each half second the older one goes. Sums pass a u64 after 4096 of them.
    for _ in 0..5000 {
        assert!(call(&store, Operation::Check, "sliding-window 9007199254740991/s", "key", half).allowed);
        clock.advance(Duration::from_millis(250));
        let answer = call(&store, Operation::Peek, "sliding-window 9007199254740991/s", "key", 1);
        assert!(answer.readings[0][0] == half || answer.readings[0][0] == 2 * half);
        clock.advance(Duration::from_millis(250));
    }
    let full = call(&store, Operation::Check, "sliding-window 9007199254740991/s", "key", half);
    assert_eq!(full.readings[0], [2 * half, 1_000_000, 0]);
    let denied = call(&store, Operation::Check, "sliding-window 9007199254740991/s", "key", half);
    assert_eq!((denied.allowed, denied.readings[0]), (false, [2 * half, 1_000_000, 500_000]));
}

#[test]
fn many_threads_on_the_real_clock_give_no_token_twice() {
    let store = MemoryStore::new(10, Arc::new(crate::clock::MonotonicClock::new()));
    let started = std::time::Instant::now();
    let admitted: u64 = std::thread::scope(|scope| {
        let work = || {
            let mut admitted = 0;
            while started.elapsed() < Duration::from_millis(500) {
                admitted += u64::from(check(&store, "1000/s burst 100", "key"));
            }
            admitted
        };
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(work)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    let most = 100 + started.elapsed().as_micros() as u64 / 1000;
    assert!(admitted <= most, "{admitted} were admitted, {most} are allowed");
}

#[test]
fn taking_and_giving_back_leaves_no_trail() {
    let (store, _clock) = store(100_000);
    for _ in 0..10_000 {
        assert!(check(&store, "5/h", "key"));
        call(&store, Operation::Refund, "5/h", "key", 1);
    }
    assert!(store.shards.iter().all(|shard| lock(shard).expiries() <= 2 * EXPIRIES_KEPT + 1));
}
