//! Waiting for tokens.

use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::Limiter;
use crate::clock::microseconds;
use crate::decision::{Decision, Source};
use crate::error::{Error, ErrorKind};
use crate::guard::{Denial, Place, Turn, first, no_runtime};
use crate::key::check_key;
use crate::store::Operation;

/// Between two attempts passes at least this long, in microseconds, whatever the store says.
const SHORTEST_WAIT: u64 = 1000;
/// Waits are lengthened by up to this part, so that processes that wait for one key do not all come back at once.
const JITTER: f64 = 0.1;

pub(super) async fn acquire(limiter: &Limiter, key: &[u8], cost: u64, max_wait: Duration) -> Result<Decision, Error> {
    check_key(key)?;
    let guard = &limiter.guard;
    guard.check_open()?;
    if limiter.limits.as_slice().iter().any(|limit| cost > limit.capacity()) {
        return limiter.decide(Operation::Check, key, cost).await;
    }
    let deadline = guard.now().saturating_add(microseconds(max_wait));
    let place = guard.enter_line(&limiter.name, key)?;
    if let Some(denial) = place.denial().filter(|denial| denial.passes_at > deadline) {
        return Ok(denied(denial, guard.now()));
    }
    let mut end = Ok(());
    let turn = first(place.turn(), async { end = guard.sleep_until(deadline).await }).await;
    end?;
    let Some(turn) = turn else { return time_is_up(limiter, &place, key).await };
    attempts(limiter, &turn?, key, cost, deadline).await
}

/// Tries until it passes, or until it cannot pass in time.
async fn attempts(limiter: &Limiter, turn: &Turn<'_>, key: &[u8], cost: u64, deadline: u64) -> Result<Decision, Error> {
    let guard = &limiter.guard;
    loop {
        let decision = attempt(limiter, key, cost).await?;
        let Some(wait) = decision.retry_after.filter(|_| !decision.allowed) else { return Ok(decision) };
        let now = guard.now();
        let passes_at = now.saturating_add(microseconds(wait));
        if passes_at > deadline || now >= deadline {
            return Ok(decision);
        }
        turn.tell(Denial { decision, passes_at });
        guard.sleep_until(wake_up(now, passes_at, deadline, guard.is_immediate())).await?;
    }
}

/// When to try again: as early as it can pass, and a little later where other processes may wait for the same.
fn wake_up(now: u64, passes_at: u64, deadline: u64, is_alone: bool) -> u64 {
    if is_alone {
        return passes_at.max(now + 1);
    }
    let wait = (passes_at - now).max(SHORTEST_WAIT);
    let jitter = (wait as f64 * JITTER * fastrand::f64()) as u64;
    (now + wait + jitter).min(deadline.max(now + wait))
}

/// One check that loses no token, should its caller go away meanwhile.
async fn attempt(limiter: &Limiter, key: &[u8], cost: u64) -> Result<Decision, Error> {
    if limiter.guard.is_immediate() {
        return limiter.decide(Operation::Check, key, cost).await;
    }
    let runtime = Handle::try_current().map_err(|_| no_runtime())?;
    let (sender, receiver) = oneshot::channel();
    let (limiter, key) = (limiter.clone(), key.to_vec());
    runtime.clone().spawn(async move {
        let outcome = limiter.decide(Operation::Check, &key, cost).await;
        // Where nobody receives it, dropping it gives the tokens back.
        let _ = sender.send(Taken { runtime, limiter, key, cost, outcome: Some(outcome) });
    });
    match receiver.await {
        Ok(mut taken) => taken.outcome.take().unwrap_or_else(lost),
        Err(_) => lost(),
    }
}

fn lost() -> Result<Decision, Error> {
    Err(Error::new(ErrorKind::Internal, "an attempt was ended together with its runtime"))
}

/// Tokens on their way to the caller. Dropped on the way, they go back.
struct Taken {
    runtime: Handle,
    limiter: Limiter,
    key: Vec<u8>,
    cost: u64,
    outcome: Option<Result<Decision, Error>>,
}

impl Drop for Taken {
    fn drop(&mut self) {
        let Some(Ok(decision)) = &self.outcome else { return };
        if !decision.allowed || self.cost == 0 || !matches!(decision.source, Source::Store | Source::Fallback) {
            return;
        }
        let (limiter, key, cost) = (self.limiter.clone(), std::mem::take(&mut self.key), self.cost);
        self.runtime.spawn(async move {
            if let Err(error) = limiter.decide(Operation::Refund, &key, cost).await {
                tracing::warn!(%error, "tokens of a caller who went away could not be given back");
            }
        });
    }
}

/// The answer to one who is still in line at the end.
async fn time_is_up(limiter: &Limiter, place: &Place<'_>, key: &[u8]) -> Result<Decision, Error> {
    if let Some(denial) = place.denial() {
        return Ok(denied(denial, limiter.guard.now()));
    }
    let mut decision = limiter.decide(Operation::Peek, key, 1).await?;
    decision.allowed = false;
    Ok(decision)
}

fn denied(denial: Denial, now: u64) -> Decision {
    let mut decision = denial.decision;
    decision.retry_after = Some(Duration::from_micros(denial.passes_at.saturating_sub(now)));
    decision
}
