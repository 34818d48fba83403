//! Findings for machines.

use serde_json::{Map, Value, json};

use crate::bytes::HITS;
use crate::findings::Findings;
use crate::sample::{Metric, Sample};
use crate::series::Series;
use crate::targets::{Better, Verdict};

pub(crate) fn of(findings: &Findings) -> Value {
    let versions: Map<String, Value> =
        findings.versions.iter().map(|(name, version)| ((*name).to_owned(), json!(version))).collect();
    let bytes = findings.bytes.iter().map(|bytes| json!({ "state": bytes.state, "hits": HITS, "bytes": bytes.after }));
    let first_uses = findings.first_uses.iter().map(|first| {
        json!({
            "topology": first.topology,
            "connect_us": first.connect,
            "first_call_then_us": first.after_connect,
            "first_call_without_connect_us": first.without,
        })
    });
    json!({
        "cores": findings.cores,
        "server": findings.server,
        "versions": versions,
        "runs": findings.runs,
        "seconds": findings.times.run.as_secs_f64(),
        "rows": findings.series.iter().flat_map(rows).collect::<Vec<_>>(),
        "bytes_per_key": bytes.collect::<Vec<_>>(),
        "first_call": first_uses.collect::<Vec<_>>(),
        "targets": findings.verdicts().iter().map(verdict).collect::<Vec<_>>(),
    })
}

fn rows(series: &Series) -> Vec<Value> {
    let row = |contender: &str, middle: Result<Sample, &str>| {
        let mut row = Map::new();
        row.insert("row".to_owned(), json!(series.row.title()));
        row.insert("contender".to_owned(), json!(contender));
        match middle {
            Ok(sample) => row.extend(Metric::ALL.map(|metric| (metric.name().to_owned(), json!(sample.get(metric))))),
            Err(error) => drop(row.insert("error".to_owned(), json!(error))),
        }
        Value::Object(row)
    };
    series.middles().map(|(contender, middle)| row(contender.name(), middle)).collect()
}

fn verdict(verdict: &Verdict) -> Value {
    json!({
        "what": verdict.what,
        "beside": verdict.beside,
        "value": verdict.value,
        "better": if verdict.better == Better::More { "more" } else { "less" },
        "must": verdict.must,
        "must_is_reached": verdict.must_is_reached(),
        "aim": verdict.aim,
        "aim_is_reached": verdict.aim_is_reached(),
    })
}
