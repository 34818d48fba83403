//! One process of many that hammer the same keys: `worker URL LIMITS KEYS HITS CALLERS PREFIX`.
//!
//! Prints `ready` once connected, begins at the first line that it reads, and ends with its counts as JSON.

use std::io::{BufRead, Write};
use std::process::ExitCode;
use std::time::Duration;

use grifo::{Client, FailurePolicy, Limiter};
use serde_json::{Value, json};

/// What the callers of one process were told.
#[derive(Default)]
struct Counts {
    allowed: Vec<u64>,
    denied: u64,
    degraded: u64,
    errors: u64,
}

impl Counts {
    fn add(&mut self, other: Self) {
        self.allowed.resize(self.allowed.len().max(other.allowed.len()), 0);
        other.allowed.iter().enumerate().for_each(|(index, count)| self.allowed[index] += count);
        self.denied += other.denied;
        self.degraded += other.degraded;
        self.errors += other.errors;
    }

    fn json(&self) -> Value {
        json!({
            "allowed": self.allowed.iter().sum::<u64>(), "by_key": self.allowed,
            "denied": self.denied, "degraded": self.degraded, "errors": self.errors,
        })
    }
}

/// Hits every key `hits` times, round after round.
async fn hammer(limiter: Limiter, prefix: String, keys: usize, hits: usize) -> Counts {
    let mut counts = Counts { allowed: vec![0; keys], ..Counts::default() };
    for _ in 0..hits {
        for index in 0..keys {
            match limiter.check(format!("{prefix}{index}")).await {
                Ok(decision) => {
                    counts.degraded += u64::from(decision.degraded());
                    counts.denied += u64::from(!decision.allowed);
                    counts.allowed[index] += u64::from(decision.allowed);
                }
                Err(_) => counts.errors += 1,
            }
        }
    }
    counts
}

async fn run(arguments: &[String]) -> Result<Counts, Box<dyn std::error::Error>> {
    let [url, limits, keys, hits, callers, prefix] = arguments else { return Err("six arguments are wanted".into()) };
    let (keys, hits, callers): (usize, usize, usize) = (keys.parse()?, hits.parse()?, callers.parse()?);
    let patience = Duration::from_secs(20);
    let client = Client::builder(url).timeout(patience).on_failure(FailurePolicy::Open).build()?;
    let limiter = client.limiter("workers", &**limits)?;
    client.connect(patience).await?;
    println!("ready");
    std::io::stdout().flush()?;
    std::io::stdin().lock().read_line(&mut String::new())?;
    let callers: Vec<_> =
        (0..callers).map(|_| tokio::spawn(hammer(limiter.clone(), prefix.clone(), keys, hits))).collect();
    let mut counts = Counts::default();
    for caller in callers {
        counts.add(caller.await?);
    }
    Ok(counts)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments).await {
        Ok(counts) => {
            println!("{}", counts.json());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
