//! Four processes share one limit on a cluster and hammer it. What they were admitted in total must be what the limit
//! allows over that time, to the token. Then one master is killed while they ask about many keys: decisions must go on,
//! those of its keys must be degraded and say so, and its replica must take over.

mod crew;
mod masters;
mod message;
mod outage;
mod outage_check;
mod outage_view;
mod place;
mod proof;
mod screen;
mod served;
mod sharing;
mod tally;
mod worker;

use std::process::ExitCode;
use std::time::Duration;

use crew::Crew;
use place::Place;
use proof::Proof;
use screen::{Screen, Style};

/// Who takes part.
const WORKERS: usize = 4;
/// Tokens in each second, and in a full bucket.
const RATE: u64 = 200;
const LIMIT: &str = "200/s";
const LIMITER: &str = "demo";
/// Of a decision while a master dies. Ten times the default, so that a busy machine is not taken for a store that is gone.
const DEADLINE: Duration = Duration::from_millis(500);
const FRAME: Duration = Duration::from_millis(100);
const USAGE: &str = "usage: demo [--seconds 1..30]

Starts a cluster of 3 masters and 3 replicas, has processes share a limit for so long, then kills a master.
Where GRIFO_URL names a server they share it there, and none is killed; GRIFO_URL=memory:// is the embedded store.";

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
    let mut screen = Screen::new();
    let mut place = Place::find(&mut screen)?;
    let mut proof = Proof::new(&place)?;
    screen.say(Style::Plain, &format!("{}\n\n", place.introduction(&proof.server()?)));
    let mut crew = Crew::ready(&place, WORKERS)?;
    sharing::run(&mut proof, &mut crew, &mut screen, place.noun(), time)?;
    match &mut place {
        Place::Own(cluster) => outage::run(cluster, &proof, &mut crew, &mut screen),
        Place::Named(_) | Place::Embedded { .. } => Ok(()),
    }
}
