//! Who is measured.

mod governor;
mod grifo;
mod redis_crate;
mod trypema;

use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

use crate::keys::Keys;
use crate::load::{self, Callers, Subject};
use crate::place::Place;
use crate::rule::Rule;
use crate::sample::Sample;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contender {
    Grifo,
    /// grifo where most calls are denied.
    GrifoDenying,
    /// The `redis` crate, one EVALSHA for each decision, over the connection that it offers for the place.
    RedisCrate,
    /// The same over one connection to each master of a cluster, as one could do by hand.
    RedisCrateByMaster,
    TrypemaRedis,
    TrypemaHybrid,
    TrypemaLocal,
    Governor,
}

/// What is measured of a contender in one run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Task {
    pub(crate) keys: Keys,
    pub(crate) callers: Callers,
    pub(crate) rule: Rule,
}

/// As many as the callers have to share with the servers on a small machine.
const WORKERS: usize = 2;

pub(crate) fn runtime() -> Result<Runtime, String> {
    Builder::new_multi_thread().worker_threads(WORKERS).enable_all().build().map_err(text)
}

/// How long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub(crate) warm_up: Duration,
    pub(crate) run: Duration,
}

impl Contender {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Grifo | Self::GrifoDenying => "grifo",
            Self::RedisCrate => "redis crate, EVALSHA",
            Self::RedisCrateByMaster => "redis crate, by master",
            Self::TrypemaRedis => "trypema, redis",
            Self::TrypemaHybrid => "trypema, hybrid",
            Self::TrypemaLocal => "trypema, local",
            Self::Governor => "governor, keyed",
        }
    }

    pub(crate) const fn is_ours(self) -> bool {
        matches!(self, Self::Grifo | Self::GrifoDenying)
    }

    /// Connects anew and measures, on a runtime of its own: some go on in the background when nobody uses them any more.
    pub(crate) fn measure(self, place: &Place, task: Task, times: Times) -> Result<Sample, String> {
        let bench = Bench { runtime: runtime()?, place, task, times };
        let rule = task.rule;
        match self {
            Self::Grifo => bench.of(grifo::Grifo::connect(place, rule, grifo::Denials::Asked)),
            Self::GrifoDenying => bench.of(grifo::Grifo::connect(place, rule, grifo::Denials::Remembered)),
            Self::RedisCrate => match place {
                Place::Cluster(cluster) => bench.of(redis_crate::connect_cluster(cluster, rule)),
                _ => bench.of(redis_crate::connect(place.url(), rule)),
            },
            Self::RedisCrateByMaster => bench.of(redis_crate::ByMaster::connect(place, rule)),
            Self::TrypemaRedis => bench.of(trypema::Redis::connect(place)),
            Self::TrypemaHybrid => bench.of(trypema::Hybrid::connect(place)),
            Self::TrypemaLocal => bench.of(async { trypema::Local::new() }),
            Self::Governor => bench.of(async { governor::Governor::new(rule) }),
        }
    }
}

struct Bench<'a> {
    runtime: Runtime,
    place: &'a Place,
    task: Task,
    times: Times,
}

impl Bench<'_> {
    fn of<S: Subject>(&self, subject: impl Future<Output = Result<S, String>>) -> Result<Sample, String> {
        let subject = self.runtime.block_on(subject)?;
        let Times { warm_up, run } = self.times;
        load::run(&self.runtime, self.place, &subject, (self.task.keys, self.task.callers), (warm_up, run))
    }
}

/// A client of grifo for other measurements.
pub(crate) fn client(url: &str) -> Result<::grifo::Client, ::grifo::Error> {
    grifo::client(url, grifo::Denials::Asked)
}

/// What went wrong, as text.
fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
