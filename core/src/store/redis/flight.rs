//! How decisions travel to one node: at once where none is under way, else together with whoever waits.
//!
//! A lone caller sends its own call. While calls are in flight others wait (see [`queue`](super::queue)), and a task takes them
//! along, one write after another, until nobody waits.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout, timeout_at};

use super::batch::{Batch, Demand, Group, Waiter};
use super::call::Call;
use super::node::Node;
use super::queue::{Outcome, Receipt, Reply, State, missing};
use super::reply::Failure;
use crate::error::{Error, late};
use crate::key::StoredKeys;
use crate::store::{Answers, Asked};

/// Requests without a reply count as in flight for so much longer than their callers wait.
const STILL_IN_FLIGHT: Duration = Duration::from_millis(200);

/// Who knows where calls must go.
pub(super) trait Route: Send + Sync + 'static {
    /// Runs a call wherever it must run, again where it surely did not. `first` is what became of it so far, and where.
    fn run(
        &self,
        call: &Call,
        first: Option<(Arc<Node>, Failure)>,
    ) -> impl Future<Output = Result<Answers, Error>> + Send;

    /// Takes note that a node cannot be reached, or did not answer.
    fn unanswered(&self);
}

/// Asks one thing of a node: at once if nobody else does, else together with others.
pub(super) fn decide<R: Route>(route: &Arc<R>, node: &Arc<Node>, demand: &Demand<'_>) -> Result<Asked<'static>, Error> {
    Ok(match enter(route, node, demand)? {
        Entered::Waiting(receipt) => Asked::Waiting(receipt),
        Entered::Alone(alone) => {
            Asked::Begun(Box::pin(alone.decide(demand.call(node.is_to_tell_time()), demand.deadline())))
        }
    })
}

/// Asks many things of a node, together. Their outcomes come in the same order.
pub(super) fn decide_together<'a, R: Route>(
    route: &Arc<R>,
    node: &Arc<Node>,
    demands: impl IntoIterator<Item = Demand<'a>>,
) -> Vec<Result<Receipt, Error>> {
    let demands: Vec<_> = demands.into_iter().map(|demand| (demand, demand.keys())).collect();
    let receipts = {
        let mut state = node.queue().lock();
        demands.into_iter().map(|(demand, keys)| line_up(&mut state, &demand, keys)).collect()
    };
    send_waiting(route, node);
    receipts
}

/// What has come of many decisions by their deadlines, in order.
pub(super) async fn outcomes(receipts: Vec<Result<Receipt, Error>>) -> Vec<Outcome> {
    let mut outcomes = Vec::with_capacity(receipts.len());
    for receipt in receipts {
        outcomes.push(match receipt {
            Ok(receipt) => receipt.outcome_in_time().await,
            Err(error) => Err(error),
        });
    }
    outcomes
}

enum Entered<R: Route> {
    Alone(Alone<R>),
    Waiting(Receipt),
}

fn enter<R: Route>(route: &Arc<R>, node: &Arc<Node>, demand: &Demand<'_>) -> Result<Entered<R>, Error> {
    let deadline = demand.deadline();
    let (reply, outcome) = oneshot::channel();
    let joined = {
        let mut state = node.queue().lock();
        if let Some(number) = state.take_off_alone(deadline) {
            return Ok(Entered::Alone(Alone { route: Arc::clone(route), node: Arc::clone(node), number }));
        }
        // Those who wait already may have been left behind by a flight whose runtime is gone.
        state.join(demand, reply).map(|()| state.take_off_for_waiting(demand.asked()))
    };
    let flight = match joined {
        Ok(flight) => flight,
        Err(reply) => {
            // Not under the lock.
            let keys = demand.keys();
            let mut state = node.queue().lock();
            state.line_up(demand, keys, reply)?;
            state.take_off_for_waiting(demand.asked())
        }
    };
    if let Some(number) = flight {
        take_along(route, node, number);
    }
    Ok(Entered::Waiting(Receipt { outcome, deadline }))
}

fn line_up(state: &mut State<Reply>, demand: &Demand<'_>, keys: StoredKeys) -> Result<Receipt, Error> {
    let (reply, outcome) = oneshot::channel();
    state.line_up(demand, keys, reply)?;
    Ok(Receipt { outcome, deadline: demand.deadline() })
}

/// Lets a flight take along those who wait, if one more may be under way.
fn send_waiting<R: Route>(route: &Arc<R>, node: &Arc<Node>) {
    let flight = node.queue().lock().take_off_for_waiting(Instant::now());
    if let Some(number) = flight {
        take_along(route, node, number);
    }
}

/// Takes along those who wait, one write after another, until nobody does.
fn take_along<R: Route>(route: &Arc<R>, node: &Arc<Node>, number: u64) {
    let line = Line { route: Arc::clone(route), node: Arc::clone(node), number };
    if Handle::try_current().is_err() {
        return;
    }
    node.queue().spawn(async move {
        // Whoever is just about to ask comes along.
        tokio::task::yield_now().await;
        while let Some(groups) = line.take() {
            send(&line.route, &line.node, groups).await;
            tokio::task::yield_now().await;
        }
    });
}

/// The flight of one caller alone. Those who wait meanwhile go on when it has landed, also where the caller went away.
struct Alone<R: Route> {
    route: Arc<R>,
    node: Arc<Node>,
    number: u64,
}

impl<R: Route> Alone<R> {
    async fn decide(self, call: Call, deadline: Instant) -> Outcome {
        let answers = self.route.run(&call, None).await;
        drop(self);
        answers?.into_told().next().ok_or_else(|| missing(deadline))
    }
}

impl<R: Route> Drop for Alone<R> {
    fn drop(&mut self) {
        self.node.queue().lock().land(self.number);
        send_waiting(&self.route, &self.node);
    }
}

/// Flights of those who wait, one after another.
struct Line<R> {
    route: Arc<R>,
    node: Arc<Node>,
    number: u64,
}

impl<R> Line<R> {
    fn take(&self) -> Option<Vec<Vec<Group<Reply>>>> {
        Some(self.node.queue().lock().board(self.number)).filter(|groups| !groups.is_empty())
    }
}

impl<R> Drop for Line<R> {
    fn drop(&mut self) {
        self.node.queue().lock().land(self.number);
    }
}

async fn send<R: Route>(route: &Arc<R>, node: &Arc<Node>, groups: Vec<Vec<Group<Reply>>>) {
    let batches: Vec<Batch<Reply>> = groups.into_iter().filter_map(Batch::of).collect();
    let Some(until) = batches.iter().filter_map(Batch::deadline).max() else { return };
    let (calls, waiting): (Vec<_>, Vec<_>) = batches.into_iter().map(|batch| (batch.call, batch.waiting)).unzip();
    let outcomes = {
        let mut replies = pin!(node.run_all(&calls));
        match timeout_at(until, &mut replies).await {
            Ok(outcomes) => outcomes,
            Err(_) => {
                route.unanswered();
                waiting.into_iter().for_each(|waiting| answer(waiting, Err(late())));
                // What was sent is still on its way, and nothing more is to follow it meanwhile.
                let _ = timeout(STILL_IN_FLIGHT, replies).await;
                return;
            }
        }
    };
    match outcomes {
        Ok(outcomes) => {
            let all = calls.into_iter().zip(waiting).zip(outcomes);
            all.for_each(|((call, waiting), outcome)| settle(route, node, Batch { call, waiting }, outcome));
        }
        Err(error) => {
            route.unanswered();
            waiting.into_iter().for_each(|waiting| answer(waiting, Err(error.clone())));
        }
    }
}

/// Answers a call, or sends it to wherever it must go.
fn settle<R: Route>(route: &Arc<R>, node: &Arc<Node>, batch: Batch<Reply>, outcome: Result<redis::Value, Failure>) {
    let failure = match outcome {
        Ok(reply) => return answer(batch.waiting, batch.call.parse(reply)),
        Err(failure) => failure,
    };
    // The node is kept until the end: its tasks end with it.
    let (route, kept) = (Arc::clone(route), Arc::clone(node));
    let Some(deadline) = batch.deadline() else { return };
    node.queue().spawn(async move {
        let again = route.run(&batch.call, Some((Arc::clone(&kept), failure)));
        let answers = timeout_at(deadline, again).await.unwrap_or_else(|_| Err(late()));
        answer(batch.waiting, answers);
    });
}

fn answer(waiters: Vec<Waiter<Reply>>, answers: Result<Answers, Error>) {
    // Whoever has gone away meanwhile does not hear it.
    match answers {
        Ok(answers) => waiters.into_iter().zip(answers.into_told()).for_each(|(waiter, told)| {
            let _ = waiter.reply.send(Ok(told));
        }),
        Err(error) => waiters.into_iter().for_each(|waiter| {
            let _ = waiter.reply.send(Err(error.clone()));
        }),
    }
}
