//! Random operations through memory, a server and the reference: every field of every decision is the same.
//!
//! `GRIFO_OPERATIONS` says how many (default 24,000), `GRIFO_SEED` which.

mod random_steps;

use std::env;
use std::time::Duration;

use grifo::{Client, FailurePolicy};
use grifo_tests::scenario::{Player, Step};
use grifo_tests::{Reference, Server};
use random_steps::{RandomSteps, Shares};
use serde_json::Value;

/// Calls on the same keys, before all is new again.
const CALLS_PER_ROUND: usize = 400;

fn number(name: &str, default: u64) -> u64 {
    env::var(name)
        .map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name} must be a number, not {text:?}")))
}

fn client(url: &str, prefix: &str) -> Client {
    let builder = Client::builder(url).prefix(prefix).timeout(Duration::from_secs(30));
    builder.on_failure(FailurePolicy::Raise).build().expect("a good URL")
}

/// One round on memory, which leads, so that steps can aim at the waits that it names.
async fn lead(steps: &mut RandomSteps, shares: &mut Shares) -> Vec<Step> {
    let mut memory = Player::new(client("memory://", "p"));
    let mut played = Vec::with_capacity(CALLS_PER_ROUND);
    for _ in 0..CALLS_PER_ROUND {
        let mut step = steps.next();
        step.results = memory.play(&step).await;
        steps.learn(&step);
        shares.count(&step);
        played.push(step);
    }
    played
}

fn requests(steps: &[Step]) -> Vec<Value> {
    steps.iter().map(|step| serde_json::to_value(step).expect("a step is JSON")).collect()
}

#[tokio::test]
async fn memory_a_server_and_the_reference_agree() {
    let operations = number("GRIFO_OPERATIONS", 24_000);
    let seed = number("GRIFO_SEED", 0x67_72_69_66_6f);
    let server = Server::start_default();
    let mut reference = Reference::start();
    let mut steps = RandomSteps::new(seed);
    let mut shares = Shares::default();
    let mut round = 0;
    while shares.operations() < operations {
        steps.begin_round();
        let played = lead(&mut steps, &mut shares).await;
        reference.forget();
        let answers = reference.call(&requests(&played));
        let mut on_server = Player::new(client(&server.url(), &format!("p{round}")));
        for (number, (step, answer)) in played.iter().zip(&answers).enumerate() {
            let place = || format!("seed {seed}, round {round}, step {number}: {step:?}");
            assert_eq!(Value::Array(step.results.clone()), answer["results"], "memory and reference: {}", place());
            assert_eq!(on_server.play(step).await, step.results, "server and memory: {}", place());
        }
        server.command::<(), _>(&["FLUSHALL"]);
        round += 1;
    }
    println!("{shares}");
    shares.assert_all_exercised();
}
