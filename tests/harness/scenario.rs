//! Plays the steps of the shared vectors against a client, at the times they name, and answers as the vectors do.

use std::collections::HashMap;
use std::time::Duration;

use grifo::testing::{Operation, decide_at};
use grifo::{Client, Decision, Limiter};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// One call of one or more entries, at a time.
#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct Step {
    /// `check`, `peek`, `refund` or `reset`.
    pub op: String,
    /// Microseconds since the Unix epoch.
    pub now: u64,
    /// The entries, in order.
    pub calls: Vec<Call>,
    /// What the reference says.
    #[serde(default, skip_serializing)]
    pub results: Vec<Value>,
}

/// One entry of a call.
#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct Call {
    /// The name of the limiter.
    pub limiter: String,
    /// Its Limits, in text form.
    pub limits: String,
    /// The key.
    pub key: String,
    /// Tokens to take or to give back.
    pub amount: u64,
}

/// Steps that follow each other on one store.
#[derive(Debug, Clone, Deserialize)]
pub struct Scenario {
    /// What it is called.
    pub name: String,
    /// The steps in order.
    pub steps: Vec<Step>,
}

/// Plays steps on one client.
#[derive(Debug)]
pub struct Player {
    client: Client,
    limiters: HashMap<(String, String), Limiter>,
}

impl Player {
    /// A player on a client.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self { client, limiters: HashMap::new() }
    }

    /// The client it plays on.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Plays one step.
    /// # Panics
    /// When a limit is refused or the call fails.
    pub async fn play(&mut self, step: &Step) -> Vec<Value> {
        for call in &step.calls {
            let name = (call.limiter.clone(), call.limits.clone());
            let client = &self.client;
            self.limiters
                .entry(name)
                .or_insert_with(|| client.limiter(&*call.limiter, &*call.limits).expect("a good limit"));
        }
        let entry = |call: &'_ Call| &self.limiters[&(call.limiter.clone(), call.limits.clone())];
        let entries: Vec<_> = step.calls.iter().map(|call| (entry(call), call.key.as_bytes(), call.amount)).collect();
        let decisions = decide_at(operation(&step.op), Duration::from_micros(step.now), &entries).await;
        decisions.expect("the store decides").iter().map(describe).collect()
    }
}

fn operation(name: &str) -> Operation {
    match name {
        "check" => Operation::Check,
        "peek" => Operation::Peek,
        "refund" => Operation::Refund,
        "reset" => Operation::Reset,
        other => panic!("there is no operation {other:?}"),
    }
}

/// A decision as the vectors write it.
#[must_use]
pub fn describe(decision: &Decision) -> Value {
    let micros = |duration: Duration| u64::try_from(duration.as_micros()).expect("a time that fits");
    let limits: Vec<Value> = decision
        .limits
        .iter()
        .map(|limit| {
            json!({
                "limit": limit.limit,
                "remaining": limit.remaining,
                "retry_after": limit.retry_after.map(micros),
                "reset_after": micros(limit.reset_after),
            })
        })
        .collect();
    json!({
        "allowed": decision.allowed,
        "source": decision.source.name(),
        "limit": decision.limit,
        "remaining": decision.remaining,
        "retry_after": decision.retry_after.map(micros),
        "reset_after": micros(decision.reset_after),
        "denied_by": decision.denied_by,
        "limits": limits,
    })
}
