//! What a process pays before its first decision: with `connect` beforehand, or with the first call.

use std::time::{Duration, Instant};

use grifo::{Client, Error};

use crate::contender::client;
use crate::sample::median;

pub(crate) const TITLE: &str = "first call";
const TIMES: usize = 51;
const LIMIT: &str = "100/s burst 50";
const PATIENCE: Duration = Duration::from_secs(5);

/// Medians, in microseconds.
#[derive(Clone, Debug)]
pub(crate) struct FirstUse {
    /// Where.
    pub(crate) topology: &'static str,
    /// `connect` on a server that knows the scripts.
    pub(crate) connect: f64,
    /// The first call after that.
    pub(crate) after_connect: f64,
    /// The first call of a client that was not connected.
    pub(crate) without: f64,
}

pub(crate) async fn measure(topology: &'static str, url: &str) -> Result<FirstUse, Error> {
    let (mut connect, mut after_connect, mut without) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..TIMES {
        let fresh = client(url)?;
        let started = Instant::now();
        fresh.connect(PATIENCE).await?;
        connect.push(microseconds(started));
        after_connect.push(first_call(&fresh).await?);
        without.push(first_call(&client(url)?).await?);
    }
    let middle = |times| median(times).unwrap_or_default();
    Ok(FirstUse { topology, connect: middle(connect), after_connect: middle(after_connect), without: middle(without) })
}

async fn first_call(client: &Client) -> Result<f64, Error> {
    let started = Instant::now();
    let _ = client.limiter("first", LIMIT)?.check("user:42").await?;
    Ok(microseconds(started))
}

fn microseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e6
}
