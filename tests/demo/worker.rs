//! One of those who take part: as a process it is told what to do on its standard input and reports on its standard output.
//!
//! In: `go KEY`, then any line or the end of the pipe to stop. Out: `ready`, `count ADMITTED DENIED` again and again and at
//! the end, `trouble MESSAGE`, `done`.

use std::io::{self, BufRead, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use grifo::{Client, FailurePolicy, Limiter};
use tokio::runtime::{Builder, Runtime};

use crate::tally::Tally;
use crate::{LIMIT, LIMITER};

/// The argument that makes a process a worker.
pub(crate) const ARGUMENT: &str = "--worker";
/// Callers in each process, each of which asks again as soon as it has its answer.
const CALLERS: usize = 8;
/// Long: a call that was given up may have been charged all the same, and would spoil the sum.
const TIMEOUT: Duration = Duration::from_secs(5);
const REPORT_EVERY: Duration = Duration::from_millis(20);
/// However it is told to stop, no worker lives longer.
const LONGEST_LIFE: Duration = Duration::from_secs(45);

pub(crate) fn main() -> ExitCode {
    let tally = Arc::new(Tally::default());
    let url = std::env::var("GRIFO_URL").unwrap_or_default();
    if let Err(message) = work(&url, &tally) {
        tally.set_trouble(message);
    }
    if let Some(message) = tally.trouble() {
        say(&format!("trouble {message}"));
        return ExitCode::FAILURE;
    }
    say(&count_line(&tally));
    say("done");
    ExitCode::SUCCESS
}

fn work(url: &str, tally: &Arc<Tally>) -> Result<(), String> {
    let runtime = runtime()?;
    let client = client(url)?;
    runtime.block_on(client.connect(TIMEOUT)).map_err(|error| error.to_string())?;
    say("ready");
    let Some(key) = next_line().as_deref().and_then(|line| line.strip_prefix("go ").map(str::to_owned)) else {
        return Ok(());
    };
    let (told, reported) = (Arc::clone(tally), Arc::clone(tally));
    thread::spawn(move || {
        next_line();
        told.stop();
    });
    let reporter = thread::spawn(move || {
        while !reported.is_stopped() {
            thread::sleep(REPORT_EVERY);
            say(&count_line(&reported));
        }
    });
    let outcome = hammer(&runtime, &client, &key, tally);
    tally.stop();
    // It must not have the last word with an older count.
    reporter.join().map_err(|_| "the reporter panicked")?;
    outcome
}

/// Asks as fast as it can until told to stop.
pub(crate) fn hammer(runtime: &Runtime, client: &Client, key: &str, tally: &Tally) -> Result<(), String> {
    let limiter = client.limiter(LIMITER, LIMIT).map_err(|error| error.to_string())?;
    let end = Instant::now() + LONGEST_LIFE;
    runtime.block_on(async {
        let callers: [_; CALLERS] = std::array::from_fn(|_| call(&limiter, key, tally, end));
        let [a, b, c, d, e, f, g, h] = callers;
        tokio::join!(a, b, c, d, e, f, g, h);
    });
    Ok(())
}

async fn call(limiter: &Limiter, key: &str, tally: &Tally, end: Instant) {
    while !tally.is_stopped() && Instant::now() < end {
        match limiter.check(key).await {
            Ok(decision) => tally.add(decision.allowed),
            Err(error) => {
                tally.set_trouble(error.to_string());
                tally.stop();
            }
        }
    }
}

/// Raises what goes wrong, since an answer from anywhere but the store would not count.
pub(crate) fn client(url: &str) -> Result<Client, String> {
    let builder = Client::builder(url).timeout(TIMEOUT).on_failure(FailurePolicy::Raise);
    builder.build().map_err(|error| error.to_string())
}

pub(crate) fn runtime() -> Result<Runtime, String> {
    Builder::new_current_thread().enable_all().build().map_err(|error| error.to_string())
}

fn count_line(tally: &Tally) -> String {
    let count = tally.count();
    format!("count {} {}", count.admitted, count.denied)
}

fn next_line() -> Option<String> {
    let mut line = String::new();
    let length = io::stdin().lock().read_line(&mut line).ok()?;
    (length > 0).then(|| line.trim_end().to_owned())
}

/// Nobody may be there to hear it any more, which is no trouble of ours.
fn say(line: &str) {
    let _ = writeln!(io::stdout().lock(), "{line}");
}
