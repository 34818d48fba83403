//! `grifo bench`

mod histogram;
mod load;
mod report;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use grifo::{FailurePolicy, Limiter};

use self::load::Load;
use self::report::Report;
use crate::Outcome;
use crate::args::{Output, Store};
use crate::failure::Failure;
use crate::terminal::{Paint, print, print_json};

/// State of this limiter is the bench's own.
const LIMITER: &str = "grifo-bench";
/// When the store must be ready. The time of the measurement comes after that.
const CONNECT: Duration = Duration::from_secs(5);

/// Measure how many decisions a second your store makes, and how long they take
///
/// Callers ask about random keys, each again as soon as it has its answer: as much load as the store bears. Mind who else uses it.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Bench {
    /// The rule, such as '100/min burst 20' or '10/s + 1000/h'; see grifo --help
    #[arg(long, value_name = "LIMIT", default_value = "1000/s")]
    limit: String,

    /// Different keys; 1 is one hot key
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    keys: u32,

    /// Callers that ask at the same time
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    callers: u32,

    /// Seconds that are measured, up to an hour
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = seconds, allow_negative_numbers = true)]
    seconds: Duration,

    #[command(flatten)]
    store: Store,

    #[command(flatten)]
    pub(crate) output: Output,
}

const AFTER_HELP: &str = "\
Its keys are those of the limiter grifo-bench, so that no other is touched, and are removed at the end.
A decision that the store does not make within --timeout counts as degraded; it is neither allowed nor denied.

Examples:
  grifo bench --store redis://localhost
  grifo bench --store redis://localhost --limit '100/min burst 20' --keys 1 --callers 500 --seconds 10 --json";

fn seconds(text: &str) -> Result<Duration, &'static str> {
    let seconds = text.parse().ok().filter(|seconds| (0.1..=3600.0).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or("a number of seconds from 0.1 to 3600 is wanted")
}

impl Bench {
    pub(crate) async fn run(&self) -> Outcome {
        let client = self.store.client()?;
        let limiter = client.limiter(LIMITER, self.limit.as_str())?;
        let pong = client.ping().await?;
        client.connect(CONNECT).await?;
        let load = Arc::new(Load::new(limiter.clone().on_failure(FailurePolicy::Open), self.keys as usize));
        let measured = load.run(self.callers as usize, self.seconds).await;
        self.clean_up(&load, &limiter).await;
        let report = Report {
            server: format!("{} {}", pong.server, pong.version),
            limit: limiter.limits().to_string(),
            keys: self.keys,
            callers: self.callers,
            measured: measured?,
        };
        if self.output.json {
            print_json(&report.json())?;
        } else {
            print(&report.text(Paint::of_stdout()))?;
        }
        Ok(ExitCode::SUCCESS)
    }

    async fn clean_up(&self, load: &Arc<Load>, limiter: &Limiter) {
        if let Err(failure) = load.clean_up(limiter).await {
            let why = match failure {
                Failure::Grifo(error) => format!(": {error}"),
                _ => String::new(),
            };
            eprintln!("warning: keys of {LIMITER} were left in the store; they expire by themselves{why}");
        }
    }
}
