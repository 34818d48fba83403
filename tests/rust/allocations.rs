//! A check on `memory://` allocates nothing once its key is known.

// Only an allocator can count allocations, and to be one is unsafe.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use grifo::testing::ManualClock;
use grifo::{Client, Decision, Error};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: all is left to the allocator of the system; the counter is a number of the thread, which allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// How often the work allocates.
fn allocations(work: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.get();
    work();
    ALLOCATIONS.get() - before
}

/// The outcome of a call that never waits, without a runtime.
fn now(call: impl Future<Output = Result<Decision, Error>>) -> Decision {
    match pin!(call).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => outcome.unwrap(),
        Poll::Pending => panic!("a call on memory:// waits"),
    }
}

const LIMITS: [&str; 6] = [
    "10/s",
    "sliding-window 10/s",
    "sliding-window-counter 10/s",
    "fixed-window 10/s",
    "10/s + fixed-window 1000/h",
    "10/s + sliding-window 10/s + sliding-window-counter 10/s + fixed-window 10/s",
];

#[test]
fn a_known_key_allocates_nothing() {
    let long = "k".repeat(1000);
    for limits in LIMITS {
        let clock = ManualClock::new();
        let client = Client::builder("memory://").clock(clock.clone()).build().unwrap();
        let limiter = client.limiter("api", limits).unwrap();
        for key in ["user:42", &long] {
            let round = || {
                let mut admitted = 0;
                for _ in 0..15 {
                    admitted += usize::from(now(limiter.check(key)).allowed);
                    clock.advance(Duration::from_millis(5));
                }
                let _ = (now(limiter.check_n(key, 0)), now(limiter.check_n(key, 11)), now(limiter.peek(key)));
                clock.advance(Duration::from_secs(2));
                assert!(admitted >= 10, "{limits}: {admitted} were admitted");
            };
            // A log grows to its length, and keeps room for some hits when all are gone.
            round();
            assert_eq!(allocations(|| (0..10).for_each(|_| round())), 0, "{limits}");
        }
    }
}

#[test]
fn what_is_counted_are_allocations() {
    assert_eq!(allocations(|| drop(Box::new(1))), 1);
    let client = Client::open("memory://").unwrap();
    let limiter = client.limiter("api", "10/s").unwrap();
    assert!(allocations(|| assert!(now(limiter.check("new")).allowed)) > 0);
}
