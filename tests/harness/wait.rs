//! Waiting for several servers to agree.

use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::server::Server;

/// Servers must agree within this, also on a machine that is busy compiling.
const DEADLINE: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(20);
/// How much of each log a failure shows.
const LOG_LINES: usize = 40;

/// Repeats a check until it holds; the panic tells what was missing at last and what the servers logged.
pub(crate) fn until<T>(what: &str, logs: impl Fn() -> String, check: impl FnMut() -> Result<T, String>) -> T {
    let result = within(DEADLINE, check);
    result.unwrap_or_else(|missing| panic!("not within {DEADLINE:?}: {what}: {missing}\n{}", logs()))
}

/// Repeats a check until it holds, or gives what was missing at last.
pub(crate) fn within<T>(limit: Duration, mut check: impl FnMut() -> Result<T, String>) -> Result<T, String> {
    let deadline = Instant::now() + limit;
    loop {
        match check() {
            Err(_) if Instant::now() < deadline => sleep(POLL),
            result => return result,
        }
    }
}

/// The ends of the logs of some servers.
pub(crate) fn logs<'a>(servers: impl IntoIterator<Item = &'a Server>) -> String {
    let mut text = String::new();
    for (index, server) in servers.into_iter().enumerate() {
        let log = server.log();
        let lines: Vec<_> = log.lines().collect();
        let end = lines[lines.len().saturating_sub(LOG_LINES)..].join("\n");
        text.push_str(&format!("--- {index}: {} on {}\n{end}\n", server.kind(), server.port()));
    }
    text
}

/// Starts several servers at the same time.
///
/// # Panics
/// When one of them does not start.
pub(crate) fn start_all(count: usize, start: impl Fn(usize) -> Server + Sync) -> Vec<Server> {
    std::thread::scope(|scope| {
        let start = &start;
        let threads: Vec<_> = (0..count).map(|index| scope.spawn(move || start(index))).collect();
        threads.into_iter().map(|t| t.join().unwrap_or_else(|e| std::panic::resume_unwind(e))).collect()
    })
}
