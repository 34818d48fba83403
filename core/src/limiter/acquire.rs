//! Waiting for tokens.

use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::Limiter;
use crate::clock::microseconds;
use crate::decision::{Decision, Source};
use crate::error::{Error, ErrorKind};
use crate::guard::{Place, Turn, first, no_runtime};
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
    let can_never_pass = limiter.limits.as_slice().iter().any(|limit| cost > limit.capacity());
    if cost == 0 || can_never_pass {
        return limiter.decide(Operation::Check, key, cost).await;
    }
    let deadline = guard.now().saturating_add(microseconds(max_wait));
    let place = guard.enter_line(&limiter.name, &limiter.limits, key, cost)?;
    if place.passes_at().is_some_and(|passes_at| passes_at > deadline) {
        return denied_in_line(limiter, &place, key, cost).await;
    }
    let mut end = Ok(());
    let turn = first(place.turn(), async { end = guard.sleep_until(deadline).await }).await;
    end?;
    match turn {
        Some(turn) => attempts(limiter, &turn?, key, cost, deadline).await,
        None => denied_in_line(limiter, &place, key, cost).await,
    }
}

/// Tries until it passes, or until it cannot pass in time.
async fn attempts(limiter: &Limiter, turn: &Turn<'_>, key: &[u8], cost: u64, deadline: u64) -> Result<Decision, Error> {
    let guard = &limiter.guard;
    loop {
        let decision = attempt(limiter, key, cost).await?;
        if !guard.is_immediate() && (decision.allowed || decision.degraded()) {
            turn.let_go(if decision.degraded() { u64::MAX } else { decision.remaining });
        }
        let now = guard.now();
        let Some(passes_at) = wait(&decision, now, deadline) else { return Ok(decision) };
        turn.tell(passes_at);
        guard.sleep_until(wake_up(now, passes_at, deadline, guard.is_immediate())).await?;
    }
}

/// When a call that was denied may pass, if it was and if that is in time.
fn wait(decision: &Decision, now: u64, deadline: u64) -> Option<u64> {
    let wait = decision.retry_after.filter(|_| !decision.allowed)?;
    let passes_at = now.saturating_add(microseconds(wait));
    (passes_at <= deadline && now < deadline).then_some(passes_at)
}

/// When to try again: as early as it can pass, and a little later where other processes may wait for the same.
fn wake_up(now: u64, passes_at: u64, deadline: u64, is_alone: bool) -> u64 {
    let wait = passes_at.saturating_sub(now);
    if is_alone || wait == 0 {
        return passes_at;
    }
    let wait = wait.max(SHORTEST_WAIT);
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
        if !decision.allowed || !matches!(decision.source, Source::Store | Source::Fallback) {
            return;
        }
        let (limiter, key) = (self.limiter.clone(), std::mem::take(&mut self.key));
        let (cost, source) = (self.cost, decision.source);
        self.runtime.spawn(async move {
            let given_back = limiter.guard.give_back(&limiter.options, source, &limiter.entry(&key, cost)).await;
            if let Err(error) = given_back {
                tracing::warn!(%error, "tokens of a caller who went away could not be given back");
            }
        });
    }
}

/// The answer to one whose time is up before those in front are gone. Where they only wait for an answer and not for tokens,
/// there may be some. Else: what the key has now, and the wait of the first in line.
async fn denied_in_line(limiter: &Limiter, place: &Place<'_>, key: &[u8], cost: u64) -> Result<Decision, Error> {
    let Some(passes_at) = place.passes_at() else { return attempt(limiter, key, cost).await };
    let decision = limiter.decide(Operation::Peek, key, 1).await?;
    if decision.degraded() {
        return Ok(decision);
    }
    let wait = passes_at.saturating_sub(limiter.guard.now()).max(SHORTEST_WAIT);
    Ok(decision.denied_for(Duration::from_micros(wait)))
}
