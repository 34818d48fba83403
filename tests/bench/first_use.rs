//! What a process pays before its first decision: with `connect` beforehand, or with the first call.

use std::time::{Duration, Instant};

use grifo::{Client, Error};

use crate::{LIMIT, client};

const TIMES: usize = 51;
const PATIENCE: Duration = Duration::from_secs(5);

/// Medians, in microseconds.
pub(crate) struct FirstUse {
    /// `connect` on a server that knows the scripts.
    pub(crate) connect: f64,
    /// The first call after that.
    pub(crate) after_connect: f64,
    /// The first call of a client that was not connected.
    pub(crate) without: f64,
}

pub(crate) async fn measure(url: &str) -> Result<FirstUse, Error> {
    let (mut connect, mut after_connect, mut without) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..TIMES {
        let fresh = client(url)?;
        let started = Instant::now();
        fresh.connect(PATIENCE).await?;
        connect.push(started.elapsed());
        after_connect.push(first_call(&fresh).await?);
        without.push(first_call(&client(url)?).await?);
    }
    Ok(FirstUse { connect: median(connect), after_connect: median(after_connect), without: median(without) })
}

async fn first_call(client: &Client) -> Result<Duration, Error> {
    let started = Instant::now();
    let _ = client.limiter("first", LIMIT)?.check("user:42").await?;
    Ok(started.elapsed())
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1e6
}
