//! One of those who take part: as a process it obeys the orders on its standard input and reports on its standard output.

use std::io;
use std::process::{self, ExitCode};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use grifo::{Client, FailurePolicy, Limiter};
use tokio::runtime::{Builder, Runtime};

use crate::message::{self, Order, Report};
use crate::served::Served;
use crate::tally::Tally;
use crate::{DEADLINE, LIMIT, LIMITER};

/// The argument that makes a process a worker.
pub(crate) const ARGUMENT: &str = "--worker";
/// Callers of the shared key in each process, each of which asks again as soon as it has its answer.
const CALLERS: usize = 8;
/// Long: a call of the shared key that was given up may have been charged all the same, and would spoil the sum.
const PATIENCE: Duration = Duration::from_secs(5);
/// The limit of each of the many keys: none of them is ever denied.
const SPREAD_LIMIT: &str = "1000/s";
/// Between two calls of the many keys, to leave the processor to the servers.
const PACE: Duration = Duration::from_millis(1);
const REPORT_EVERY: Duration = Duration::from_millis(20);
/// However it is told to stop, no process lives longer.
const LONGEST_LIFE: Duration = Duration::from_secs(150);

pub(crate) fn main() -> ExitCode {
    thread::spawn(|| {
        thread::sleep(LONGEST_LIFE);
        process::exit(1);
    });
    let url = std::env::var("GRIFO_URL").unwrap_or_default();
    match obey(&url, &Arc::default()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            say(&Report::Trouble(message));
            ExitCode::FAILURE
        }
    }
}

fn obey(url: &str, tally: &Arc<Tally>) -> Result<(), String> {
    let runtime = runtime()?;
    let client = patient_client(url)?;
    connect(&runtime, &client)?;
    let orders = listen(Arc::clone(tally));
    say(&Report::Idle);
    for order in orders {
        match order {
            Order::Share(key) => {
                let report = |tally: &Tally| Report::Shared(tally.count());
                reporting(tally, report, || hammer(&runtime, &client, &key, tally))?;
            }
            Order::Spread(keys) => {
                *tally.served() = Served::new(keys.len());
                let report = |tally: &Tally| Report::Spread(tally.served().clone());
                reporting(tally, report, || spread(&runtime, url, &keys, tally))?;
            }
            // The listener has heard it.
            Order::Stop => {}
        }
        say(&Report::Idle);
    }
    Ok(())
}

/// Hears orders while others are obeyed, so that these can be stopped.
fn listen(tally: Arc<Tally>) -> Receiver<Order> {
    let (sender, orders) = channel();
    thread::spawn(move || {
        for order in message::read(io::stdin().lock()).map_while(Result::ok) {
            tally.set_stopped(matches!(order, Order::Stop));
            if !tally.is_stopped() && sender.send(order).is_err() {
                break;
            }
        }
        tally.set_stopped(true);
    });
    orders
}

/// Reports again and again while it works, and how it stood at the end.
fn reporting(
    tally: &Tally,
    report: impl Fn(&Tally) -> Report + Sync,
    work: impl FnOnce() -> Result<(), String>,
) -> Result<(), String> {
    thread::scope(|scope| {
        scope.spawn(|| {
            while !tally.is_stopped() {
                thread::sleep(REPORT_EVERY);
                say(&report(tally));
            }
        });
        let outcome = work();
        tally.set_stopped(true);
        outcome
    })?;
    say(&report(tally));
    Ok(())
}

/// Asks about one key as fast as it can until told to stop.
pub(crate) fn hammer(runtime: &Runtime, client: &Client, key: &str, tally: &Tally) -> Result<(), String> {
    let limiter = client.limiter(LIMITER, LIMIT).map_err(|error| error.to_string())?;
    let failure = OnceLock::new();
    runtime.block_on(async {
        let callers: [_; CALLERS] = std::array::from_fn(|_| call(&limiter, key, tally, &failure));
        let [a, b, c, d, e, f, g, h] = callers;
        tokio::join!(a, b, c, d, e, f, g, h);
    });
    failure.into_inner().map_or(Ok(()), Err)
}

async fn call(limiter: &Limiter, key: &str, tally: &Tally, failure: &OnceLock<String>) {
    while !tally.is_stopped() && failure.get().is_none() {
        match limiter.check(key).await {
            Ok(decision) => tally.add(decision.allowed),
            // The first failure tells it all.
            Err(error) => drop(failure.set(error.to_string())),
        }
    }
}

/// Asks about many keys in turn, at a steady pace, until told to stop.
fn spread(runtime: &Runtime, url: &str, keys: &[Vec<String>], tally: &Tally) -> Result<(), String> {
    let client = Client::builder(url).timeout(DEADLINE).on_failure(FailurePolicy::Open).build();
    let client = client.map_err(|error| error.to_string())?;
    connect(runtime, &client)?;
    let limiter = client.limiter("spread", SPREAD_LIMIT).map_err(|error| error.to_string())?;
    let keys: Vec<_> = (0..).zip(keys).flat_map(|(shard, keys)| keys.iter().map(move |key| (shard, key))).collect();
    runtime.block_on(async {
        for (shard, key) in keys.iter().cycle().take_while(|_| !tally.is_stopped()) {
            let began = Instant::now();
            let decision = limiter.check(key).await.map_err(|error| error.to_string())?;
            tally.served().note(*shard, &decision, began.elapsed())?;
            tokio::time::sleep(PACE).await;
        }
        Ok(())
    })
}

/// Raises what goes wrong, since an answer from anywhere but the store would not count.
pub(crate) fn patient_client(url: &str) -> Result<Client, String> {
    let builder = Client::builder(url).timeout(PATIENCE).on_failure(FailurePolicy::Raise);
    builder.build().map_err(|error| error.to_string())
}

pub(crate) fn connect(runtime: &Runtime, client: &Client) -> Result<(), String> {
    runtime.block_on(client.connect(PATIENCE)).map_err(|error| error.to_string())
}

pub(crate) fn runtime() -> Result<Runtime, String> {
    Builder::new_current_thread().enable_all().build().map_err(|error| error.to_string())
}

/// Nobody may be there to hear it any more, which is no trouble of ours.
fn say(report: &Report) {
    let _ = message::write(&mut io::stdout().lock(), report);
}
