//! What the cases of a cluster share.

use std::time::{Duration, Instant};

use grifo::{Client, ErrorKind, FailurePolicy, Limiter};
use tokio::sync::Mutex;

use crate::server_binary::{ServerKind, installed};

/// Clusters of many nodes share few cores: one at a time, so that what is measured is the client.
pub static TURN: Mutex<()> = Mutex::const_new(());

/// The server of clusters that are not started on every version.
#[must_use]
pub fn default_kind() -> ServerKind {
    installed()[0].kind
}

/// A client that is patient.
///
/// # Panics
/// When the URL is none.
pub fn client(url: &str, policy: FailurePolicy) -> Client {
    Client::builder(url).timeout(Duration::from_secs(5)).on_failure(policy).build().expect("a good URL")
}

/// A limiter whose answers tell what went wrong, within a deadline that a busy machine can keep.
///
/// # Panics
/// When URL or Limits are none.
#[must_use]
pub fn hasty(url: &str, limits: &str) -> Limiter {
    let client = Client::builder(url).timeout(Duration::from_millis(250)).build().expect("a good URL");
    client.limiter("case", limits).expect("good limits")
}

/// Names of keys, which spread over all partitions when there are many.
#[must_use]
pub fn keys(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("key {number}")).collect()
}

/// How many of the keys the store does not decide just now, and why.
///
/// # Panics
/// When the limiter raises.
pub async fn degraded(limiter: &Limiter, keys: &[String]) -> Vec<(String, ErrorKind)> {
    let calls = keys.iter().map(|key| (key, 0));
    let decisions = limiter.check_many(calls).await.expect("the policy answers");
    keys.iter().zip(decisions).filter_map(|(key, decision)| Some((key.clone(), decision.reason?))).collect()
}

/// Waits until the store decides all keys. How long that took.
///
/// # Panics
/// When it takes longer than `at_most`.
pub async fn until_normal(limiter: &Limiter, keys: &[String], at_most: Duration) -> Duration {
    let started = Instant::now();
    loop {
        let failing = degraded(limiter, keys).await;
        if failing.is_empty() {
            return started.elapsed();
        }
        let some = &failing[..failing.len().min(3)];
        assert!(started.elapsed() < at_most, "after {:?}: {} keys, {some:?}", started.elapsed(), failing.len());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
