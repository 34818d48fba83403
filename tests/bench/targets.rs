//! What grifo must and wants to reach beside its peers.

use crate::contender::Contender::{self, Governor, Grifo, GrifoDenying, RedisCrate, TrypemaRedis};
use crate::plan::Row;
use crate::sample::Metric;
use crate::series::Series;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Better {
    More,
    Less,
}

#[derive(Clone, Copy, Debug)]
struct Target {
    row: &'static str,
    metric: Metric,
    ours: Contender,
    /// Without a peer the number itself is judged.
    peer: Option<Contender>,
    better: Better,
    must: f64,
    aim: Option<f64>,
}

const fn rate(row: &'static str, peer: Contender, must: f64, aim: f64) -> Target {
    let (metric, better) = (Metric::PerSecond, Better::More);
    Target { row, metric, ours: Grifo, peer: Some(peer), better, must, aim: Some(aim) }
}

const fn latency(row: &'static str, must: f64, aim: Option<f64>) -> Target {
    Target { row, metric: Metric::P50, ours: Grifo, peer: Some(RedisCrate), better: Better::Less, must, aim }
}

const fn denial(metric: Metric, must: f64, aim: f64) -> Target {
    let row = "standalone: repeated denial of one key, 1 thread";
    Target { row, metric, ours: GrifoDenying, peer: None, better: Better::Less, must, aim: Some(aim) }
}

const TARGETS: [Target; 14] = [
    rate("standalone: distinct keys, 50 callers", RedisCrate, 1.5, 1.9),
    latency("standalone: distinct keys, 50 callers", 0.7, None),
    rate("standalone: distinct keys, 500 callers", RedisCrate, 1.8, 2.2),
    latency("standalone: distinct keys, 500 callers", 0.6, None),
    rate("3-master cluster: distinct keys, 500 callers", RedisCrate, 1.8, 2.3),
    rate("3-master cluster: distinct keys, 5000 callers", RedisCrate, 4.0, 6.0),
    rate("standalone: one hot key, 500 callers", RedisCrate, 15.0, 25.0),
    rate("standalone: Zipf(1.0), 500 callers", RedisCrate, 2.5, 4.0),
    latency("standalone: distinct keys, 1 caller", 1.05, Some(1.0)),
    rate("standalone: distinct keys, 500 callers", TrypemaRedis, 4.0, 6.0),
    rate("memory: distinct keys, 1 thread", Governor, 0.8, 1.0),
    rate("memory: distinct keys, 2 threads", Governor, 0.8, 1.0),
    denial(Metric::Nanoseconds, 100.0, 60.0),
    // Once a second a denial is no longer remembered, and asks again.
    denial(Metric::StoreCalls, 0.0001, 0.0001),
];

/// A target and what was measured.
#[derive(Clone, Debug)]
pub(crate) struct Verdict {
    pub(crate) what: String,
    /// The peer, or the unit.
    pub(crate) beside: String,
    pub(crate) value: Option<f64>,
    pub(crate) better: Better,
    pub(crate) must: f64,
    pub(crate) aim: Option<f64>,
}

impl Verdict {
    pub(crate) fn must_is_reached(&self) -> bool {
        self.reaches(Some(self.must))
    }

    pub(crate) fn aim_is_reached(&self) -> bool {
        self.reaches(self.aim)
    }

    fn reaches(&self, wanted: Option<f64>) -> bool {
        self.value.zip(wanted).is_some_and(|(value, wanted)| match self.better {
            Better::More => value >= wanted,
            Better::Less => value <= wanted,
        })
    }
}

/// Refuses targets that no row can reach.
pub(crate) fn check(rows: &[Row]) -> Result<(), String> {
    let can_be_judged = |target: &&Target| {
        let row = rows.iter().find(|row| row.title() == target.row);
        let has = |contender| row.is_some_and(|row| row.contenders.contains(&contender));
        has(target.ours) && target.peer.is_none_or(has)
    };
    match TARGETS.iter().find(|target| !can_be_judged(target)) {
        Some(target) => Err(format!("nothing measures {target:?}")),
        None => Ok(()),
    }
}

/// Of the rows that were measured.
pub(crate) fn judge(all: &[Series]) -> Vec<Verdict> {
    let of = |target: &Target| all.iter().find(|series| series.row.title() == target.row).map(|s| target.judge(s));
    TARGETS.iter().filter_map(of).collect()
}

impl Target {
    fn judge(&self, series: &Series) -> Verdict {
        let metric = match self.metric {
            Metric::PerSecond => "decisions/s",
            Metric::P50 => "p50",
            Metric::Nanoseconds => "time",
            _ => "store calls",
        };
        let value = match self.peer {
            Some(peer) => series.ratio(self.metric, self.ours, peer),
            None => series.middle(self.ours).and_then(|sample| sample.get(self.metric)),
        };
        let unit = if self.metric == Metric::Nanoseconds { "ns" } else { "for each denial" };
        Verdict {
            what: format!("{}: {metric}", self.row),
            beside: self.peer.map_or_else(|| unit.to_owned(), |peer| format!("x {}", peer.name())),
            value,
            better: self.better,
            must: self.must,
            aim: self.aim,
        }
    }
}
