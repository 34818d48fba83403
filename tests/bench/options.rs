//! What the bench can be told.

use std::time::Duration;

use clap::Parser;
use grifo_tests::{ServerBinary, server_binary};

use crate::contender::Times;

/// Measures grifo beside the redis crate, trypema and governor, on servers that it starts itself
#[derive(Debug, Parser)]
#[command(name = "bench")]
pub(crate) struct Options {
    /// Runs of each contender, of which the median is shown
    #[arg(long, value_name = "N", default_value = "5", value_parser = clap::value_parser!(u32).range(1..=99))]
    pub(crate) runs: u32,

    /// Seconds that a run takes
    #[arg(long, value_name = "S", default_value = "1", value_parser = seconds)]
    seconds: Duration,

    /// Measure only what has TEXT in its title or in a contender's name; may be given several times
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,

    /// The kind of server, such as valkey or redis-7.0
    #[arg(long, value_name = "NAME")]
    server: Option<String>,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// Print the titles of what can be measured, and measure nothing
    #[arg(long)]
    pub(crate) list: bool,
}

impl Options {
    pub(crate) fn means(&self, is_meant_by: impl Fn(&str) -> bool) -> bool {
        self.only.is_empty() || self.only.iter().any(|filter| is_meant_by(filter))
    }

    pub(crate) fn times(&self) -> Times {
        Times { warm_up: (self.seconds / 4).min(Duration::from_millis(250)), run: self.seconds }
    }

    /// The default one, or the first whose name begins so.
    pub(crate) fn server(&self) -> Result<&'static ServerBinary, String> {
        let installed = server_binary::installed();
        let wanted = self.server.as_deref().unwrap_or_default();
        installed.iter().find(|binary| binary.kind.name().starts_with(wanted)).ok_or_else(|| {
            let names: Vec<_> = installed.iter().map(|binary| binary.kind.name()).collect();
            format!("there is no server {wanted}, but {}", names.join(", "))
        })
    }
}

fn seconds(text: &str) -> Result<Duration, &'static str> {
    let seconds = text.parse().ok().filter(|seconds| (0.05..=600.0).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or("a number of seconds from 0.05 to 600 is wanted")
}
