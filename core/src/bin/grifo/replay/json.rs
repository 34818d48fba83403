//! A replay as JSON.

use serde_json::{Value, json};

use super::Report;
use super::tally::Tally;
use super::timeline::timestamp;

pub(super) fn of(report: &Report<'_>) -> Value {
    let log = report.log;
    let span = log.span();
    let reasons: Vec<Value> = log
        .faults()
        .map(|(fault, bad)| json!({ "reason": fault.text(), "count": bad.count, "first_line": bad.first }))
        .collect();
    json!({
        "store": report.store,
        "key": report.key.name(),
        "lines": log.lines,
        "bad_lines": log.bad_lines(),
        "bad_reasons": reasons,
        "first": span.map(|(first, _)| timestamp(first).to_string()),
        "last": span.map(|(_, last)| timestamp(last).to_string()),
        "limits": report.limits.iter().map(|(name, tally)| limit(report, name, tally)).collect::<Vec<_>>(),
    })
}

fn limit(report: &Report<'_>, name: &str, tally: &Tally) -> Value {
    let most_denied: Vec<Value> = tally
        .most_denied(report.log)
        .into_iter()
        .map(|one| json!({ "key": key(one.key), "denied": one.denied, "requests": one.requests }))
        .collect();
    json!({
        "limit": name,
        "requests": report.log.records.len(),
        "allowed": tally.total_allowed(),
        "denied": tally.total_denied(),
        "distinct_keys": report.log.keys.len(),
        "keys_ever_denied": tally.keys_ever_denied(),
        "most_denied": most_denied,
        "timeline": {
            "start": timestamp(report.timeline.start).to_string(),
            "step": report.timeline.step,
            "allowed": tally.allowed,
            "denied": tally.denied,
        },
    })
}

/// JSON holds text alone, so what is not UTF-8 is written with escapes.
fn key(key: &[u8]) -> String {
    str::from_utf8(key).map_or_else(|_| crate::terminal::safe(key).into_owned(), str::to_owned)
}
