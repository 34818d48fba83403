//! `grifo replay`

mod json;
mod judge;
mod line;
mod log;
mod plot;
mod tally;
mod text;
mod timeline;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use grifo::{Client, Limiter};

use self::judge::Judge;
use self::log::{KeyKind, Log};
use self::tally::Tally;
use self::timeline::Timeline;
use crate::Outcome;
use crate::args::{Output, Tls, loud};
use crate::failure::Failure;
use crate::terminal::{Paint, print, print_json};

/// Nobody waits for a replay's single decisions, so a slow server is no error.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Tell what Limits would have done to the requests of an access log
///
/// Reads Common or Combined Log Format, puts the lines in order of their time, and decides about each at that time: a log of
/// four days takes as long as its decisions do. Bad lines are counted and left out.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Replay {
    /// The access log; - reads stdin
    log: PathBuf,

    /// A rule, such as '10/min burst 5' or '5/10s + 30/min'; each --limit is judged on its own over the whole log
    #[arg(long = "limit", value_name = "LIMIT", required = true)]
    limits: Vec<String>,

    /// What is limited
    #[arg(long, value_name = "KEY", value_enum, default_value = "ip")]
    key: KeyKind,

    /// Where the decisions are made; keys of the replay have a prefix of their own there and are removed at the end
    #[arg(long, value_name = "URL", default_value = "memory://")]
    store: String,

    /// Draw allowed and denied over time, one panel for each --limit
    #[arg(long, value_name = "FILE.svg", value_parser = picture)]
    plot: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) output: Output,

    #[command(flatten)]
    tls: Tls,
}

const AFTER_HELP: &str = "\
Numbers are the same on every store. GRIFO_URL is not used here: a replay touches a server only when --store names it.

Examples:
  grifo replay access.log --limit '10/min burst 5'
  zcat access.log.*.gz | grifo replay - --limit 'sliding-window 100/h' --key ip+path --json
  grifo replay access.log --limit 10/min --limit 30/min --plot replay.svg --store redis://localhost";

/// A place that a picture can be written to, as far as can be told beforehand.
fn picture(path: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(path);
    if path.extension().is_none_or(|extension| !extension.eq_ignore_ascii_case("svg")) {
        return Err("the picture is SVG, so its name must end with .svg".to_owned());
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !folder.is_dir() {
        return Err(format!("there is no folder {}", folder.display()));
    }
    Ok(path)
}

/// What a replay found, for those who show it.
#[derive(Debug)]
struct Report<'a> {
    log: &'a Log,
    key: KeyKind,
    /// Server and version.
    store: String,
    timeline: &'a Timeline,
    /// Each limiter's Limits as text, and what came of it.
    limits: Vec<(String, Tally)>,
}

impl Replay {
    pub(crate) async fn run(&self) -> Outcome {
        let prefix = format!("grifo-replay-{:016x}", fastrand::u64(..));
        // Nothing is ever evicted: that would let requests pass.
        let builder = self.tls.set(loud(Client::builder(&self.store))).prefix(&prefix).max_keys(usize::MAX);
        let client = builder.timeout(TIMEOUT).build()?;
        let limiters = self.limiters(&client)?;
        let pong = client.ping().await?;
        let log = Log::read(&self.log, self.key)?;
        let judge = Arc::new(Judge::new(log, limiters));
        let outcome = judge.run().await;
        if pong.server != "memory"
            && let Err(failure) = judge.clean_up().await
        {
            eprintln!("warning: keys {prefix}:* were left in the store; they expire by themselves");
            outcome.and(Err(failure))?;
        } else {
            outcome?;
        }
        self.show(&judge, format!("{} {}", pong.server, pong.version))
    }

    /// One for each --limit, all with names of their own.
    fn limiters(&self, client: &Client) -> Result<Vec<Limiter>, Failure> {
        let limiter = |(index, text): (usize, &String)| Ok(client.limiter(index.to_string(), text.as_str())?);
        self.limits.iter().enumerate().map(limiter).collect()
    }

    fn show(&self, judge: &Judge, store: String) -> Outcome {
        let report =
            Report { log: judge.log(), key: self.key, store, timeline: judge.timeline(), limits: judge.results() };
        if self.output.json {
            print_json(&json::of(&report))?;
        } else {
            print(&text::of(&report, Paint::of_stdout()))?;
        }
        if let Some(path) = &self.plot {
            plot::write(&report, path)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
