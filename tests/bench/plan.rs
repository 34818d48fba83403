//! What is measured.

use crate::contender::Contender::{
    self, Governor, Grifo, GrifoDenying, RedisCrate, RedisCrateByMaster, TrypemaHybrid, TrypemaLocal, TrypemaRedis,
};
use crate::contender::Task;
use crate::keys::Keys;
use crate::load::Callers::{self, Tasks, Threads};
use crate::place::Topology;
use crate::rule::Rule;

const MANY: usize = 100_000;
/// Nothing is denied and no key becomes as new while it is measured: that would cost the server time between the runs.
const EVEN: Rule = Rule { count: 10_000, seconds: 86_400 };
/// The same where one key in twelve calls is the same.
const UNEVEN: Rule = Rule { count: 8_640_000, seconds: 400 * 86_400 };
/// The same where all calls are for one key.
const HOT: Rule = Rule { count: 864_000_000, seconds: 86_400 };
/// The same without a server between.
const NEAR: Rule = Rule { count: 1_000_000, seconds: 86_400 };
/// All are denied but the first.
const TIGHT: Rule = Rule { count: 1, seconds: 86_400 };

/// Contenders that do the same, whose runs alternate.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) topology: Topology,
    /// Keys and callers in words.
    pub(crate) name: String,
    pub(crate) task: Task,
    pub(crate) contenders: Vec<Contender>,
}

impl Row {
    fn new(topology: Topology, what: &str, keys: Keys, callers: Callers, rule: Rule) -> Self {
        let (count, unit) = match callers {
            Tasks(count) => (count, "caller"),
            Threads(count) => (count, "thread"),
        };
        let name = format!("{what}, {count} {unit}{}", if count == 1 { "" } else { "s" });
        Self { topology, name, task: Task { keys, callers, rule }, contenders: Vec::new() }
    }

    fn with(mut self, contenders: &[Contender]) -> Self {
        self.contenders.extend(contenders);
        self
    }

    pub(crate) fn title(&self) -> String {
        format!("{}: {}", self.topology.name(), self.name)
    }

    pub(crate) fn denies(&self) -> bool {
        self.contenders.contains(&GrifoDenying)
    }

    /// Whether a filter means this row: it is part of the title, or of a contender's name.
    pub(crate) fn is_meant_by(&self, filter: &str) -> bool {
        self.title().contains(filter) || self.contenders.iter().any(|contender| contender.name().contains(filter))
    }
}

pub(crate) fn rows() -> Vec<Row> {
    let on_servers = [Topology::Standalone, Topology::Cluster].into_iter().flat_map(rows_on_servers);
    on_servers.chain([denied()]).chain([1, 2].map(in_memory)).collect()
}

fn rows_on_servers(topology: Topology) -> Vec<Row> {
    let row =
        |what, keys, callers, rule| Row::new(topology, what, keys, Tasks(callers), rule).with(&[Grifo, RedisCrate]);
    let mut rows = vec![row("distinct keys", Keys::Distinct(MANY), 1, EVEN)];
    for callers in [50, 500, 5000] {
        rows.push(row("distinct keys", Keys::Distinct(MANY), callers, EVEN));
        rows.push(row("one hot key", Keys::One, callers, HOT));
        rows.push(row("Zipf(1.0)", Keys::Zipf(MANY), callers, UNEVEN));
    }
    rows.into_iter().map(with_others).collect()
}

/// The other peers, where the most is asked.
fn with_others(row: Row) -> Row {
    match (row.topology, row.task.callers.count()) {
        (Topology::Standalone, 500) => row.with(&[TrypemaRedis, TrypemaHybrid]),
        (Topology::Cluster, 500) if row.task.keys == Keys::Distinct(MANY) => row.with(&[RedisCrateByMaster]),
        _ => row,
    }
}

fn denied() -> Row {
    Row::new(Topology::Standalone, "repeated denial of one key", Keys::One, Threads(1), TIGHT)
        .with(&[GrifoDenying, RedisCrate])
}

fn in_memory(threads: usize) -> Row {
    Row::new(Topology::Memory, "distinct keys", Keys::Distinct(MANY), Threads(threads), NEAR).with(&[
        Grifo,
        Governor,
        TrypemaLocal,
    ])
}
