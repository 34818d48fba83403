//! Decisions a second and how long they take: the embedded store, a server through grifo, and the same server through a
//! plain EVALSHA of an obvious script, side by side in one run; then the same on a cluster of three masters, where the plain
//! script goes through the cluster connection of the `redis` crate, and through one connection to each master; and what the first call of a process costs on each.

mod first_use;
mod load;
mod plain;

use std::process::ExitCode;
use std::time::Duration;

use grifo::{Client, FailurePolicy};
use grifo_tests::cluster::Cluster;
use grifo_tests::{CommandStats, Server, server_binary};
use load::{Load, Measured};
use plain::{Plain, PlainNodes};
use tokio::runtime::{Builder, Runtime};

const LIMIT: &str = "100/s burst 50";
const RUN: Duration = Duration::from_millis(1000);
/// Runs of each, of which the median is shown.
const RUNS: usize = 3;
const MANY_KEYS: usize = 100_000;
const MASTERS: usize = 3;

const LOADS: [Load; 4] = [
    Load { name: "1 caller, 100,000 keys", callers: 1, keys: MANY_KEYS },
    Load { name: "50 callers, 100,000 keys", callers: 50, keys: MANY_KEYS },
    Load { name: "500 callers, 100,000 keys", callers: 500, keys: MANY_KEYS },
    Load { name: "50 callers, one key", callers: 50, keys: 1 },
];

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn std::error::Error>> {
    let runtime = Builder::new_multi_thread().enable_all().build()?;
    on_one_server(&runtime)?;
    on_a_cluster(&runtime)
}

fn on_one_server(runtime: &Runtime) -> Result<(), Box<dyn std::error::Error>> {
    let server = Server::start_default();
    println!(
        "{} cores, {} {}.{} on loopback, limit {LIMIT}, median of {RUNS} runs of {:.1} s\n",
        std::thread::available_parallelism()?,
        if server.kind().name().starts_with("valkey") { "Valkey" } else { "Redis" },
        server.version().0,
        server.version().1,
        RUN.as_secs_f64()
    );
    println!("{:<26} {:<24} {:>12} {:>9} {:>9}", "", "", "decisions/s", "p50", "p99");
    for load in LOADS {
        let memory = client("memory://")?;
        let store = client(&server.url())?;
        let plain = runtime.block_on(Plain::connect(&server.url()))?;
        show(load.name, "grifo, memory://", median(|| runtime.block_on(load.run_grifo(&memory, LIMIT, RUN)))?);
        CommandStats::reset(&server);
        show("", "grifo, redis://", median(|| runtime.block_on(load.run_grifo(&store, LIMIT, RUN)))?);
        let grifo = CommandStats::read(&server).of("evalsha").usec_per_call;
        CommandStats::reset(&server);
        show("", "plain EVALSHA", median(|| runtime.block_on(load.run_plain(&plain, RUN)))?);
        let other = CommandStats::read(&server).of("evalsha").usec_per_call;
        println!("{:<26} of which the server's time: grifo {grifo:.1} us, plain {other:.1} us\n", "");
    }
    Ok(show_first_use(runtime, &server.url())?)
}

fn on_a_cluster(runtime: &Runtime) -> Result<(), Box<dyn std::error::Error>> {
    let cluster = Cluster::start(server_binary::installed()[0].kind, MASTERS, 0);
    println!("a cluster of {MASTERS} masters\n");
    let store = client(&cluster.url())?;
    let nodes = cluster.masters().into_iter().map(|master| cluster.node(master).url()).collect();
    let plain = runtime.block_on(Plain::connect_cluster(nodes))?;
    let own = |master| (cluster.node(master).url(), tag_of(&cluster, master));
    let each = runtime.block_on(PlainNodes::connect(cluster.masters().into_iter().map(own).collect()))?;
    for load in LOADS {
        show(load.name, "grifo, redis+cluster://", median(|| runtime.block_on(load.run_grifo(&store, LIMIT, RUN)))?);
        show("", "redis crate, EVALSHA", median(|| runtime.block_on(load.run_plain(&plain, RUN)))?);
        show("", "each master, EVALSHA", median(|| runtime.block_on(load.run_plain_nodes(&each, RUN)))?);
    }
    println!();
    Ok(show_first_use(runtime, &cluster.url())?)
}

/// A hash tag whose slot a master serves.
fn tag_of(cluster: &Cluster, master: usize) -> String {
    let serves = |tag: &String| cluster.master_of_slot(cluster.slot_of_key(tag)) == Some(master);
    (0..).map(|number: u32| number.to_string()).find(serves).unwrap_or_default()
}

fn show_first_use(runtime: &Runtime, url: &str) -> Result<(), grifo::Error> {
    let first = runtime.block_on(first_use::measure(url))?;
    println!(
        "a new client: connect {:.0} us, its first call then {:.0} us; first call without connect {:.0} us\n",
        first.connect, first.after_connect, first.without
    );
    Ok(())
}

fn client(url: &str) -> Result<Client, grifo::Error> {
    Client::builder(url)
        .timeout(Duration::from_secs(5))
        .on_failure(FailurePolicy::Raise)
        .max_keys(2 * MANY_KEYS)
        .build()
}

/// The run in the middle, by its decisions a second.
fn median(mut run: impl FnMut() -> Result<Measured, String>) -> Result<Measured, String> {
    let mut runs = (0..RUNS).map(|_| run()).collect::<Result<Vec<_>, _>>()?;
    runs.sort_by(|one, other| one.per_second.total_cmp(&other.per_second));
    Ok(runs.swap_remove(RUNS / 2))
}

fn show(load: &str, what: &str, measured: Measured) {
    println!(
        "{load:<26} {what:<24} {:>12.0} {:>6.1} us {:>6.1} us",
        measured.per_second, measured.median, measured.slow
    );
}
