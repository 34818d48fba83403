//! Findings for people.

use std::fmt::Write;

use super::grouped;
use crate::bytes::{self, Bytes, HITS};
use crate::findings::Findings;
use crate::first_use::FirstUse;
use crate::sample::{Metric, Sample};
use crate::series::Series;
use crate::targets::{Better, Verdict};

/// Fewer allowed than this, and something else is measured than was meant.
const LEAST_ALLOWED: f64 = 0.99;

pub(crate) fn head(findings: &Findings) -> String {
    let versions: Vec<_> = findings.versions.iter().map(|(name, version)| format!("{name} {version}")).collect();
    format!(
        "{} cores, {} on loopback, {}\nmedians of {} runs of {:.1} s; contenders take turns\n\n{:<24}{:>12}{:>11}{:>11}{:>11}{:>11}{:>11}{:>9}{:>10}\n",
        findings.cores,
        findings.server,
        versions.join(", "),
        findings.runs,
        findings.times.run.as_secs_f64(),
        "",
        "decisions/s",
        "p50 us",
        "p99 us",
        "p99.9 us",
        "client us",
        "server us",
        "calls",
        "allowed"
    )
}

/// The contenders of one row, a line each.
pub(crate) fn series(series: &Series) -> String {
    let mut text = format!("{}\n", series.row.title());
    for (contender, middle) in series.middles() {
        let line = match middle {
            Ok(sample) => numbers(&sample),
            Err(error) => format!("  {error}"),
        };
        let _ = writeln!(text, "  {:<22}{line}", contender.name());
        let allowed = middle.ok().and_then(|sample| sample.get(Metric::Allowed)).unwrap_or(1.0);
        if allowed < LEAST_ALLOWED && !series.row.denies() {
            let _ = writeln!(text, "  WARNING: less than {:.0} % were allowed", LEAST_ALLOWED * 100.0);
        }
    }
    text
}

fn numbers(sample: &Sample) -> String {
    let known = |metric, show: &dyn Fn(f64) -> String| sample.get(metric).map_or_else(|| "-".to_owned(), show);
    let fine = |metric| known(metric, &|it| if it < 100.0 { format!("{it:.2}") } else { format!("{it:.0}") });
    format!(
        "{:>12}{:>11}{:>11}{:>11}{:>11}{:>11}{:>9}{:>8} %",
        known(Metric::PerSecond, &grouped),
        fine(Metric::P50),
        fine(Metric::P99),
        fine(Metric::P999),
        fine(Metric::ClientCpu),
        fine(Metric::ServerCpu),
        known(Metric::StoreCalls, &|it| format!("{it:.3}")),
        known(Metric::Allowed, &|it| format!("{:.1}", it * 100.0)),
    )
}

/// What comes after all rows.
pub(crate) fn end(findings: &Findings) -> String {
    bytes_table(&findings.bytes) + &first_uses(&findings.first_uses) + &verdicts(&findings.verdicts())
}

fn bytes_table(all: &[Bytes]) -> String {
    if all.is_empty() {
        return String::new();
    }
    let mut text = format!("\n{:<26}{:>12}{:>12}\n", bytes::TITLE, "1 hit", format!("{} hits", HITS[1]));
    for bytes in all {
        let _ = writeln!(text, "  {:<24}{:>12}{:>12}", bytes.state, bytes.after[0], bytes.after[1]);
    }
    text
}

fn first_uses(all: &[FirstUse]) -> String {
    let line = |first: &FirstUse| {
        format!(
            "\na new client, {}: connect {:.0} us, its first call then {:.0} us; first call without connect {:.0} us\n",
            first.topology, first.connect, first.after_connect, first.without
        )
    };
    all.iter().map(line).collect()
}

fn verdicts(all: &[Verdict]) -> String {
    if all.is_empty() {
        return String::new();
    }
    let mut text = format!("\n{:<64}{:<26}{:>10}{:>10}{:>10}\n", "grifo", "beside", "", "must", "aim");
    for verdict in all {
        let sign = if verdict.better == Better::More { ">=" } else { "<=" };
        let bound = |wanted: f64| format!("{sign} {wanted}");
        let _ = writeln!(
            text,
            "{:<64}{:<26}{:>10}{:>10}{:>10}  {}",
            verdict.what,
            verdict.beside,
            verdict.value.map_or_else(|| "-".to_owned(), |it| format!("{it:.2}")),
            bound(verdict.must),
            verdict.aim.map(bound).unwrap_or_default(),
            mark(verdict)
        );
    }
    text
}

fn mark(verdict: &Verdict) -> &'static str {
    match (verdict.must_is_reached(), verdict.aim_is_reached()) {
        _ if verdict.value.is_none() => "not measured",
        (_, true) => "ok, aim reached",
        (true, false) => "ok",
        (false, false) => "MISSED",
    }
}
