//! How much of what can go wrong a random run has exercised.

use std::collections::{HashMap, HashSet};
use std::fmt;

use grifo_tests::scenario::Step;
use serde_json::Value;

/// Counts of what happened in a run.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    operations: u64,
    calls: u64,
    checks: u64,
    denials: u64,
    step_backs: u64,
    limit_changes: u64,
    refunds: u64,
    partial_refunds: u64,
    several_entries: u64,
    shared_keys: u64,
    last_time: u64,
    last_limits: HashMap<(String, String), String>,
    remaining: HashMap<(String, String), u64>,
}

impl Shares {
    /// How many entries were decided.
    pub(crate) fn operations(&self) -> u64 {
        self.operations
    }

    /// Counts a step that was played.
    pub(crate) fn count(&mut self, step: &Step) {
        self.calls += 1;
        self.step_backs += u64::from(step.now < self.last_time);
        self.several_entries += u64::from(step.calls.len() > 1);
        let keys: HashSet<_> = step.calls.iter().map(|call| (&call.limiter, &call.key)).collect();
        self.shared_keys += u64::from(keys.len() < step.calls.len());
        self.last_time = step.now;
        for (call, result) in step.calls.iter().zip(&step.results) {
            self.operations += 1;
            let key = (call.limiter.clone(), call.key.clone());
            let before = self.last_limits.insert(key.clone(), call.limits.clone());
            self.limit_changes += u64::from(before.is_some_and(|before| before != call.limits));
            let (limit, remaining) = (number(result, "limit"), number(result, "remaining"));
            let before = self.remaining.insert(key, remaining);
            match step.op.as_str() {
                "check" => {
                    self.checks += 1;
                    self.denials += u64::from(result["allowed"] == false);
                }
                "refund" => {
                    self.refunds += 1;
                    let more = before.is_some_and(|before| remaining > before);
                    self.partial_refunds += u64::from(more && remaining < limit);
                }
                _ => {}
            }
        }
    }

    /// # Panics
    /// When something that matters was hardly exercised.
    pub(crate) fn assert_all_exercised(&self) {
        let at_least = |what: &str, part: u64, of: u64, percent: u64| {
            assert!(part * 100 >= of * percent, "only {part} of {of} {what}, less than {percent} %");
        };
        at_least("checks were denied", self.denials, self.checks, 15);
        at_least("checks were allowed", self.checks - self.denials, self.checks, 15);
        at_least("calls stepped back in time", self.step_backs, self.calls, 3);
        at_least("operations changed the limits", self.limit_changes, self.operations, 10);
        at_least("refunds gave back a part", self.partial_refunds, self.refunds, 3);
        at_least("calls had several entries", self.several_entries, self.calls, 30);
        at_least("calls asked several things of one key", self.shared_keys, self.calls, 15);
    }
}

impl fmt::Display for Shares {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |part: u64, of: u64| 100.0 * part as f64 / of.max(1) as f64;
        write!(
            f,
            "{} operations in {} calls; denied {:.1} % of {} checks; stepped back {:.1} % of calls; limits changed {:.1} % of \
             operations; {:.1} % of {} refunds were partial; several entries in {:.1} % of calls",
            self.operations,
            self.calls,
            percent(self.denials, self.checks),
            self.checks,
            percent(self.step_backs, self.calls),
            percent(self.limit_changes, self.operations),
            percent(self.partial_refunds, self.refunds),
            self.refunds,
            percent(self.several_entries, self.calls),
        )
    }
}

fn number(result: &Value, field: &str) -> u64 {
    result[field].as_u64().unwrap_or_default()
}
