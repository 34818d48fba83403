//! Callers that ask again as soon as they have their answer.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use grifo::Client;
use redis::aio::ConnectionLike;

use crate::plain::{Plain, PlainNodes};

/// Every so manyth call is timed, so that timing costs little where calls are fast.
const TIMED: usize = 8;
/// Steps through the keys in an order that is as good as random, and the same in every run.
const STRIDE: usize = 7919;

#[derive(Clone, Copy)]
pub(crate) struct Load {
    pub(crate) name: &'static str,
    pub(crate) callers: usize,
    pub(crate) keys: usize,
}

/// Decisions a second, and microseconds from call to answer.
pub(crate) struct Measured {
    pub(crate) per_second: f64,
    pub(crate) median: f64,
    pub(crate) slow: f64,
}

impl Load {
    pub(crate) async fn run_grifo(&self, client: &Client, limit: &str, time: Duration) -> Result<Measured, String> {
        client.connect(Duration::from_secs(5)).await.map_err(|error| error.to_string())?;
        let limiter = client.limiter("bench", limit).map_err(|error| error.to_string())?;
        let call = move |key: Arc<str>| {
            let limiter = limiter.clone();
            async move { limiter.check(key.as_bytes()).await.map(|_| ()).map_err(|error| error.to_string()) }
        };
        self.run(call, time).await
    }

    pub(crate) async fn run_plain<C>(&self, plain: &Plain<C>, time: Duration) -> Result<Measured, String>
    where
        C: ConnectionLike + Clone + Send + 'static,
    {
        let plain = plain.clone();
        let call = move |key: Arc<str>| {
            let mut plain = plain.clone();
            async move { plain.check(&key).await.map(|_| ()).map_err(|error| error.to_string()) }
        };
        self.run(call, time).await
    }

    pub(crate) async fn run_plain_nodes(&self, nodes: &PlainNodes, time: Duration) -> Result<Measured, String> {
        let nodes = nodes.clone();
        let call = move |key: Arc<str>| {
            let mut nodes = nodes.clone();
            async move { nodes.check(&key).await.map(|_| ()).map_err(|error| error.to_string()) }
        };
        self.run(call, time).await
    }

    async fn run<F>(
        &self,
        call: impl Fn(Arc<str>) -> F + Clone + Send + 'static,
        time: Duration,
    ) -> Result<Measured, String>
    where
        F: Future<Output = Result<(), String>> + Send + 'static,
    {
        let keys: Arc<[Arc<str>]> = (0..self.keys).map(|number| format!("user:{number}").into()).collect();
        let start = Instant::now();
        let callers: Vec<_> = (0..self.callers)
            .map(|number| tokio::spawn(caller(call.clone(), Arc::clone(&keys), number * STRIDE, start + time)))
            .collect();
        let (mut count, mut latencies) = (0, Vec::new());
        for caller in callers {
            let (calls, seen) = caller.await.map_err(|error| error.to_string())??;
            count += calls;
            latencies.extend(seen);
        }
        let seconds = start.elapsed().as_secs_f64();
        latencies.sort_unstable();
        let part = |of: f64| latencies[(latencies.len() as f64 * of) as usize].as_secs_f64() * 1e6;
        Ok(Measured { per_second: count as f64 / seconds, median: part(0.5), slow: part(0.99) })
    }
}

async fn caller<F: Future<Output = Result<(), String>>>(
    call: impl Fn(Arc<str>) -> F,
    keys: Arc<[Arc<str>]>,
    mut position: usize,
    end: Instant,
) -> Result<(usize, Vec<Duration>), String> {
    let (mut calls, mut latencies) = (0, Vec::new());
    loop {
        let start = Instant::now();
        call(Arc::clone(&keys[position % keys.len()])).await?;
        latencies.push(start.elapsed());
        for _ in 1..TIMED {
            position += STRIDE;
            call(Arc::clone(&keys[position % keys.len()])).await?;
        }
        position += STRIDE;
        calls += TIMED;
        // The embedded store never waits, and would let nobody else have a turn.
        tokio::task::yield_now().await;
        if Instant::now() >= end {
            return Ok((calls, latencies));
        }
    }
}
