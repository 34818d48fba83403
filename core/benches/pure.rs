//! What a decision costs where no server is asked: `cargo bench -p grifo --bench pure`.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use grifo::testing::ManualClock;
use grifo::{Client, Limiter, Limits};
use tokio::runtime::{Builder, Runtime};

const KEYS: usize = 10_000;
/// More than is ever taken of a key.
const PLENTY: &str = "1000000/h";

fn parse(criterion: &mut Criterion) {
    for text in ["100/min burst 20", "sliding-window 1000/h", "10/s + 1000/h + fixed-window 5000/d"] {
        let parse = || black_box(text).parse::<Limits>().expect("a good limit");
        criterion.bench_function(&format!("parse {text}"), |bencher| bencher.iter(parse));
    }
}

/// Time stands still, so that it is the same work in every round.
fn limiter(text: &str) -> Limiter {
    let builder = Client::builder("memory://").clock(ManualClock::new());
    let client = builder.build().expect("good options");
    client.limiter("bench", text).expect("a good limit")
}

fn decide(criterion: &mut Criterion, runtime: &Runtime, name: &str, limit: &str, keys: usize) {
    let limiter = limiter(limit);
    let keys: Vec<String> = (0..keys).map(|number| format!("user:{number:011}")).collect();
    let mut next = keys.iter().cycle();
    let mut call = || runtime.block_on(limiter.check(next.next().expect("there are keys"))).expect("a decision");
    criterion.bench_function(name, |bencher| bencher.iter(&mut call));
}

fn decide_in_memory(criterion: &mut Criterion) {
    let runtime = Builder::new_current_thread().build().expect("a runtime");
    for algorithm in ["token-bucket", "sliding-window-counter", "fixed-window"] {
        let limit = format!("{algorithm} {PLENTY}");
        decide(criterion, &runtime, &format!("allow {algorithm}"), &limit, KEYS);
    }
    for algorithm in ["token-bucket", "sliding-window", "sliding-window-counter", "fixed-window"] {
        decide(criterion, &runtime, &format!("deny {algorithm}"), &format!("{algorithm} 1/d"), 1);
    }
    decide(criterion, &runtime, "allow two limits", &format!("{PLENTY} + fixed-window {PLENTY}"), KEYS);
}

criterion_group!(benches, parse, decide_in_memory);
criterion_main!(benches);
