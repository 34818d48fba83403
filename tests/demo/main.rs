//! Four processes share one limit on one server and hammer it. What they were admitted in total must be what the limit
//! allows over that time, to the token.

mod crew;
mod place;
mod proof;
mod tally;
mod view;
mod worker;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use crew::Crew;
use place::Place;
use proof::{Proof, Verdict};
use view::{Snapshot, View};

/// Who takes part.
const WORKERS: usize = 4;
/// Tokens in each second, and in a full bucket.
const RATE: u64 = 200;
const LIMIT: &str = "200/s";
const LIMITER: &str = "demo";
const FRAME: Duration = Duration::from_millis(100);
const USAGE: &str = "usage: demo [--seconds 1..30]

Starts a server, or uses the one that GRIFO_URL names; GRIFO_URL=memory:// uses the embedded store.";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let seconds = match words.as_slice() {
        [worker::ARGUMENT] => return worker::main(),
        [] => Some(8),
        ["--seconds", number] => number.parse().ok().filter(|seconds| (1..=30).contains(seconds)),
        ["--help" | "-h"] => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        _ => None,
    };
    let Some(seconds) = seconds else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match run(Duration::from_secs(seconds)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("\nFAILED: {message}");
            ExitCode::FAILURE
        }
    }
}

fn run(time: Duration) -> Result<(), String> {
    let place = Place::find();
    let mut proof = Proof::new(&place.url)?;
    println!("{}\n", place.introduction(&proof.server()?));
    let mut crew = Crew::ready(&place, WORKERS)?;
    let key = proof.begin()?;
    crew.go(proof.client(), &key)?;
    watch(&crew, place.noun(), time)?;
    let counts = crew.stop()?;
    report(&proof.end(&key, &counts)?)
}

/// Shows the run until its time is over.
fn watch(crew: &Crew, noun: &'static str, time: Duration) -> Result<(), String> {
    let mut view = View::new(noun);
    let start = Instant::now();
    loop {
        let elapsed = start.elapsed();
        view.draw(&Snapshot { elapsed: elapsed.min(time), time, counts: crew.counts()?, rate: RATE }, elapsed >= time);
        if elapsed >= time {
            return Ok(());
        }
        std::thread::sleep(FRAME.min(time - elapsed));
    }
}

fn report(verdict: &Verdict) -> Result<(), String> {
    println!(
        "\nChecked on the {} clock, from the call that emptied the bucket to the last denial, {:.6} s:",
        verdict.clock, verdict.seconds
    );
    println!("  {RATE} tokens a second allow        {:>6}", verdict.allowed);
    println!("  admitted to the {WORKERS} above         {:>6}", verdict.by_crew);
    println!("  admitted at the end, left over   {:>6}", verdict.left);
    let admitted = verdict.by_crew + verdict.left;
    if admitted == verdict.allowed {
        println!("EXACT: {admitted} admitted, not one more and not one fewer.");
        return Ok(());
    }
    let (by, than) = if admitted > verdict.allowed {
        (admitted - verdict.allowed, "more")
    } else {
        (verdict.allowed - admitted, "fewer")
    };
    Err(format!("{admitted} were admitted, {by} {than} than the limit allows"))
}
