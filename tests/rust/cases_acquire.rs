//! Waiting for tokens: in order, no longer than it makes sense, and without losing any.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use grifo::testing::ManualClock;
use grifo::{Limiter, Source};
use grifo_tests::case::{Place, eventually, of_each_algorithm, patient};
use tokio::task::JoinHandle;

const SECOND: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_secs(100 * 365 * 86_400);

/// Lets every task that can go on go on.
async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

fn on_manual_clock(limits: &str) -> (Limiter, ManualClock) {
    let clock = ManualClock::new();
    let client = patient("memory://").clock(clock.clone()).build().unwrap();
    (client.limiter("case", limits).unwrap(), clock)
}

type Log = Arc<Mutex<Vec<usize>>>;

/// A waiting caller who notes his number once he has his tokens.
fn waiter(limiter: &Limiter, key: &'static str, cost: u64, number: usize, log: &Log) -> JoinHandle<()> {
    let (limiter, log) = (limiter.clone(), Arc::clone(log));
    tokio::spawn(async move {
        assert!(limiter.acquire(key, cost, LONG).await.unwrap().allowed);
        log.lock().unwrap().push(number);
    })
}

#[tokio::test]
async fn acquire_serves_callers_in_order_of_arrival_on_the_manual_clock() {
    let rules = ["1/s", "sliding-window 1/s", "fixed-window 1/s", "sliding-window-counter 1/s"];
    for limits in rules {
        let (limiter, clock) = on_manual_clock(limits);
        let log = Log::default();
        for number in 0..6 {
            drop(waiter(&limiter, "k", 1, number, &log));
            settle().await;
        }
        assert_eq!(*log.lock().unwrap(), [0], "{limits}");
        for _ in 0..40 {
            clock.advance(SECOND / 4);
            settle().await;
        }
        assert_eq!(*log.lock().unwrap(), [0, 1, 2, 3, 4, 5], "{limits}");
    }
}

#[tokio::test]
async fn acquire_lets_no_small_cost_overtake_a_large_one() {
    let (limiter, clock) = on_manual_clock("10/10s");
    assert!(limiter.check_n("k", 10).await.unwrap().allowed);
    let log = Log::default();
    for (number, cost) in [8, 1, 1].into_iter().enumerate() {
        drop(waiter(&limiter, "k", cost, number, &log));
        settle().await;
    }
    clock.advance(7 * SECOND);
    settle().await;
    assert!(log.lock().unwrap().is_empty());
    clock.advance(SECOND);
    settle().await;
    assert_eq!(*log.lock().unwrap(), [0]);
    clock.advance(2 * SECOND);
    settle().await;
    assert_eq!(*log.lock().unwrap(), [0, 1, 2]);
}

#[tokio::test]
async fn acquire_serves_callers_in_order_of_arrival_in_the_store() {
    let place = Place::redis();
    let limiter = place.limiter("100/s burst 1");
    let log = Log::default();
    let mut callers = Vec::new();
    for number in 0..20 {
        callers.push(waiter(&limiter, "k", 1, number, &log));
        settle().await;
    }
    for caller in callers {
        caller.await.unwrap();
    }
    assert_eq!(*log.lock().unwrap(), (0..20).collect::<Vec<_>>());
}

#[tokio::test]
async fn acquire_waits_as_long_as_it_must_and_hardly_longer() {
    for place in Place::each() {
        let limiter = place.limiter("2/s burst 1");
        assert!(limiter.check("k").await.unwrap().allowed);
        let started = Instant::now();
        let decision = limiter.acquire("k", 1, 10 * SECOND).await.unwrap();
        let waited = started.elapsed();
        assert!(decision.allowed && decision.source == Source::Store, "{place}: {decision:?}");
        assert!(waited >= Duration::from_millis(450) && waited < Duration::from_millis(900), "{place}: {waited:?}");
    }
}

#[tokio::test]
async fn acquire_denies_at_once_what_cannot_fit() {
    for place in Place::each() {
        for limits in of_each_algorithm("10/20000d") {
            let limiter = place.limiter(&limits);
            assert!(limiter.check_n(&limits, 8).await.unwrap().allowed);
            let started = Instant::now();
            let decision = limiter.acquire(&limits, 5, 3600 * SECOND).await.unwrap();
            assert!(!decision.allowed && decision.retry_after.unwrap() > 3600 * SECOND, "{place}, {limits}");
            assert_eq!(decision.remaining, 2, "{place}, {limits}");
            let never = limiter.acquire(&limits, 11, LONG).await.unwrap();
            assert!(!never.allowed && never.retry_after.is_none(), "{place}, {limits}");
            assert!(limiter.acquire(&limits, 0, Duration::ZERO).await.unwrap().allowed, "{place}, {limits}");
            assert!(limiter.acquire(&limits, 2, Duration::ZERO).await.unwrap().allowed, "{place}, {limits}");
            assert!(!limiter.acquire(&limits, 1, Duration::ZERO).await.unwrap().allowed, "{place}, {limits}");
            assert!(started.elapsed() < SECOND, "{place}, {limits}: {:?}", started.elapsed());
        }
    }
}

#[tokio::test]
async fn acquire_denies_at_once_who_stands_behind_one_that_waits_too_long_for_him() {
    for place in Place::each() {
        let limiter = place.limiter("1/h");
        assert!(limiter.check("k").await.unwrap().allowed);
        let log = Log::default();
        let first = waiter(&limiter, "k", 1, 0, &log);
        let started = Instant::now();
        eventually("the denial", 5 * SECOND, async || {
            let decision = limiter.acquire("k", 1, Duration::from_millis(1500)).await.unwrap();
            assert!(!decision.allowed && decision.retry_after.unwrap() > 3000 * SECOND, "{place}: {decision:?}");
            started.elapsed() < SECOND
        })
        .await;
        first.abort();
    }
}

#[tokio::test]
async fn acquire_denies_at_once_a_cost_that_can_never_pass_also_behind_others() {
    for place in Place::each() {
        let limiter = place.limiter("1/h");
        assert!(limiter.check("k").await.unwrap().allowed);
        let log = Log::default();
        let first = waiter(&limiter, "k", 1, 0, &log);
        settle().await;
        let answer = tokio::time::timeout(SECOND, limiter.acquire("k", 2, 2 * 3600 * SECOND)).await;
        let decision = answer.unwrap_or_else(|_| panic!("{place}: it waits in line for what can never be")).unwrap();
        assert!(!decision.allowed && decision.retry_after.is_none(), "{place}: {decision:?}");
        first.abort();
    }
}

#[tokio::test]
async fn acquire_ends_when_its_time_is_up() {
    let (limiter, clock) = on_manual_clock("1/10s");
    assert!(limiter.check("k").await.unwrap().allowed);
    let ask = |wait: Duration| {
        let limiter = limiter.clone();
        tokio::spawn(async move { limiter.acquire("k", 1, wait).await.unwrap() })
    };
    let (first, second) = (ask(10 * SECOND), ask(12 * SECOND));
    settle().await;
    clock.advance(10 * SECOND);
    settle().await;
    assert!(first.await.unwrap().allowed);
    // The second had to wait for another ten seconds, of which it had two.
    assert!(!second.await.unwrap().allowed);
    assert_eq!(limiter.peek("k").await.unwrap().remaining, 0);
}

#[tokio::test]
async fn bd_13_close_ends_those_who_wait() {
    for place in Place::each() {
        let client = place.client();
        let limiter = client.limiter("case", "1/h").unwrap();
        assert!(limiter.check("k").await.unwrap().allowed);
        let ask = || {
            let limiter = limiter.clone();
            tokio::spawn(async move { limiter.acquire("k", 1, LONG).await })
        };
        let waiting = [ask(), ask()];
        settle().await;
        tokio::time::sleep(SECOND / 10).await;
        client.close();
        for caller in waiting {
            let answer = tokio::time::timeout(SECOND, caller).await;
            let answer = answer.unwrap_or_else(|_| panic!("{place}: it still waits on a client that was closed"));
            assert_eq!(answer.unwrap().unwrap_err().kind(), grifo::ErrorKind::Closed, "{place}");
        }
    }
}

#[tokio::test]
async fn acquire_passes_the_turn_on_when_the_first_in_line_goes_away() {
    let (limiter, clock) = on_manual_clock("1/10s");
    assert!(limiter.check("k").await.unwrap().allowed);
    let log = Log::default();
    let mut callers = Vec::new();
    for number in 0..4 {
        callers.push(waiter(&limiter, "k", 1, number, &log));
        settle().await;
    }
    callers[0].abort();
    callers[2].abort();
    settle().await;
    for _ in 0..2 {
        clock.advance(10 * SECOND);
        settle().await;
    }
    assert_eq!(*log.lock().unwrap(), [1, 3]);
}

/// Callers of random costs of whom a random half goes away at random times; gives what the others took.
async fn random_cancellations(limiter: &Limiter, random: &mut fastrand::Rng) -> u64 {
    let mut callers = Vec::new();
    for _ in 0..60 {
        let (limiter, cost) = (limiter.clone(), random.u64(1..=3));
        let patience = if random.bool() { Some(Duration::from_micros(random.u64(0..3000))) } else { None };
        callers.push(tokio::spawn(async move {
            let acquired = limiter.acquire("k", cost, LONG);
            let decision = match patience {
                Some(patience) => tokio::time::timeout(patience, acquired).await.ok()?,
                None => tokio::time::timeout(Duration::from_millis(60), acquired).await.ok()?,
            };
            decision.unwrap().allowed.then_some(cost)
        }));
        if random.u8(..4) == 0 {
            tokio::time::sleep(Duration::from_micros(random.u64(0..500))).await;
        }
    }
    let mut taken = 0;
    for caller in callers {
        taken += caller.await.unwrap().unwrap_or(0);
    }
    taken
}

async fn nothing_is_lost(seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    for place in Place::each() {
        for limits in of_each_algorithm("40/20000d") {
            let limiter = place.limiter(&limits);
            let taken = random_cancellations(&limiter, &mut random).await;
            let what = format!("{place}, {limits}, seed {seed}: {taken} taken");
            eventually(&what, 5 * SECOND, async || limiter.peek("k").await.unwrap().remaining == 40 - taken).await;
            assert!(limiter.reset("k").await.unwrap().remaining == 40, "{what}");
        }
    }
}

#[tokio::test]
async fn acquire_loses_and_leaks_no_token_when_callers_go_away() {
    for seed in 0..3 {
        nothing_is_lost(seed).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn acquire_loses_and_leaks_no_token_when_callers_of_many_threads_go_away() {
    for seed in 3..6 {
        nothing_is_lost(seed).await;
    }
}

#[tokio::test]
async fn acquire_loses_no_token_on_the_manual_clock() {
    let mut random = fastrand::Rng::with_seed(7);
    for limits in of_each_algorithm("5/s") {
        let (limiter, clock) = on_manual_clock(&limits);
        let log = Log::default();
        let mut callers = Vec::new();
        for number in 0..200 {
            callers.push(waiter(&limiter, "k", random.u64(1..=2), number, &log));
            if random.u8(..3) == 0 {
                clock.advance(Duration::from_millis(random.u64(..400)));
                settle().await;
            }
            if random.bool() {
                let index = random.usize(..callers.len());
                callers[index].abort();
            }
        }
        callers.iter().for_each(JoinHandle::abort);
        settle().await;
        clock.advance(2 * SECOND);
        assert_eq!(limiter.peek("k").await.unwrap().remaining, 5, "{limits}");
        assert!(limiter.acquire("k", 5, Duration::ZERO).await.unwrap().allowed, "{limits}: the line is empty");
        assert!(log.lock().unwrap().is_sorted(), "{limits}: {log:?}");
    }
}

/// Polls a future outside of any runtime.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut context = std::task::Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            std::task::Poll::Ready(output) => return output,
            std::task::Poll::Pending => std::thread::park(),
        }
    }
}

#[test]
fn memory_needs_no_runtime() {
    let client = patient("memory://").build().unwrap();
    let limiter = client.limiter("case", "10/h").unwrap();
    block_on(async {
        client.connect(SECOND).await.unwrap();
        client.ping().await.unwrap();
        assert!(limiter.check("k").await.unwrap().allowed);
        assert!(limiter.peek("k").await.unwrap().allowed);
        assert!(limiter.acquire("k", 1, LONG).await.unwrap().allowed);
        assert!(!limiter.acquire("k", 11, LONG).await.unwrap().allowed);
        assert_eq!(limiter.refund("k", 1).await.unwrap().remaining, 9);
    });
}

#[test]
fn acquire_in_memory_says_that_it_cannot_wait_without_a_runtime() {
    let limiter = patient("memory://").build().unwrap().limiter("case", "10/s burst 1").unwrap();
    block_on(async {
        assert!(limiter.check("k").await.unwrap().allowed);
        assert_eq!(limiter.acquire("k", 1, SECOND).await.unwrap_err().kind(), grifo::ErrorKind::Internal);
        assert!(!limiter.acquire("k", 1, Duration::from_millis(1)).await.unwrap().allowed);
    });
}

#[test]
fn a_store_asked_outside_of_a_runtime_is_an_error_and_no_panic() {
    let place = Place::redis();
    let limiter = place.limiter("10/h");
    assert_eq!(block_on(limiter.check("k")).unwrap_err().kind(), grifo::ErrorKind::Internal);
    assert_eq!(block_on(limiter.peek("k")).unwrap_err().kind(), grifo::ErrorKind::Internal);
    assert!(block_on(limiter.acquire("k", 1, SECOND)).is_err());
}
