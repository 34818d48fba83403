//! How a Decision is printed.

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use grifo::{Decision, Limits};
use serde_json::{Value, json};

use crate::args::Output;
use crate::terminal::{Paint, grouped, print_json};

/// 0 for what is allowed, 1 for what is denied.
pub(crate) fn exit_code(decision: &Decision) -> ExitCode {
    ExitCode::from(u8::from(!decision.allowed))
}

pub(crate) fn print(decision: &Decision, limits: &Limits, output: &Output) -> io::Result<()> {
    if output.json {
        return print_json(&as_json(decision, limits));
    }
    crate::terminal::print(&as_text(decision, limits, Paint::of_stdout()))
}

fn as_text(decision: &Decision, limits: &Limits, paint: Paint) -> String {
    let word = if decision.allowed { paint.good("allowed") } else { paint.bad("denied") };
    let whole = state(decision.limit, decision.remaining, decision.retry_after, decision.reset_after);
    let mut text = format!("{word}: {whole}\n");
    if decision.limits.len() > 1 {
        for (index, (limit, one)) in limits.as_slice().iter().zip(decision.limits.iter()).enumerate() {
            let mark = if decision.denied_by == Some(index) { paint.bad("  denied") } else { String::new() };
            let state = state(one.limit, one.remaining, one.retry_after, one.reset_after);
            text.push_str(&format!("  {limit}: {state}{mark}\n"));
        }
    }
    text
}

fn state(limit: u64, remaining: u64, retry_after: Option<Duration>, reset_after: Duration) -> String {
    let retry = match retry_after {
        Some(Duration::ZERO) => String::new(),
        Some(wait) => format!(", would pass in {}", seconds(wait)),
        None => ", never passes: the cost is above the limit".to_owned(),
    };
    let reset = if reset_after.is_zero() { "as new".to_owned() } else { format!("as new in {}", seconds(reset_after)) };
    format!("{} of {} left{retry}, {reset}", grouped(remaining), grouped(limit))
}

/// Rounded up, since whoever waits for less is denied.
fn seconds(wait: Duration) -> String {
    let milliseconds = wait.as_micros().div_ceil(1000);
    format!("{}.{:03} s", milliseconds / 1000, milliseconds % 1000)
}

fn as_json(decision: &Decision, limits: &Limits) -> Value {
    let parts = limits.as_slice().iter().zip(decision.limits.iter());
    let parts: Vec<Value> = parts
        .map(|(limit, one)| {
            json!({
                "rule": limit.to_string(),
                "limit": one.limit,
                "remaining": one.remaining,
                "retry_after": one.retry_after.map(|wait| wait.as_secs_f64()),
                "reset_after": one.reset_after.as_secs_f64(),
            })
        })
        .collect();
    json!({
        "allowed": decision.allowed,
        "limit": decision.limit,
        "remaining": decision.remaining,
        "retry_after": decision.retry_after.map(|wait| wait.as_secs_f64()),
        "reset_after": decision.reset_after.as_secs_f64(),
        "source": decision.source.name(),
        "degraded": decision.degraded(),
        "reason": decision.reason.map(|kind| kind.name()),
        "denied_by": decision.denied_by,
        "limits": parts,
    })
}
