//! How decisions travel to one node: at once where none is under way, else together with whoever waits.
//!
//! A lone caller sends its own call. While calls are in flight others wait (see [`batch`](super::batch)), and a task takes them
//! along, one write after another, until nobody waits. There are never more than a few such flights, each with a deadline:
//! that of the last of its callers. One that is long past it runs on a runtime that nobody drives any more, and no longer
//! counts.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::batch::{Batch, Batches, Demand, Group, Waiter};
use super::call::Call;
use super::node::Node;
use super::reply::Failure;
use crate::error::{Error, ErrorKind, closed, late};
use crate::store::{Answers, Told};

/// How many writes to a node may be under way at once.
const MOST_FLIGHTS: usize = 2;
/// A flight that is so long past its deadline is lost.
const LOST_AFTER: Duration = Duration::from_secs(1);

type Outcome = Result<Told, Error>;
type Reply = oneshot::Sender<Outcome>;

/// Who knows where calls must go.
pub(super) trait Route: Send + Sync + 'static {
    /// Runs a call wherever it must run, again where it surely did not. `first` is what became of it so far, and where.
    fn run(
        &self,
        call: &Call,
        slot: u16,
        first: Option<(Arc<Node>, Failure)>,
    ) -> impl Future<Output = Result<Answers, Error>> + Send;

    /// Takes note that a node cannot be reached, or did not answer.
    fn unanswered(&self);
}

/// The decisions that are under way to a node, and those that wait.
#[derive(Debug, Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    tasks: Mutex<JoinSet<()>>,
}

#[derive(Debug, Default)]
struct State {
    batches: Batches<Reply>,
    flights: Vec<Flight>,
    /// The number of the last flight.
    last: u64,
    is_closed: bool,
}

#[derive(Debug)]
struct Flight {
    number: u64,
    until: Instant,
}

/// Asks one thing of a node: at once if nobody else does, else together with others.
pub(super) async fn decide<R: Route>(route: &Arc<R>, node: &Arc<Node>, demand: Demand) -> Outcome {
    let (slot, deadline) = (demand.slot, demand.deadline);
    let (in_flight, demand) = match enter(route, node, demand)? {
        Entered::Waiting(receipt) => return receipt.outcome().await,
        Entered::Alone(in_flight, demand) => (in_flight, demand),
    };
    let call = demand.into_call(node.is_to_tell_time());
    let answers = route.run(&call, slot, None).await;
    drop(in_flight);
    let mut told = answers?.into_told();
    told.next().ok_or_else(|| missing(deadline))
}

/// Asks many things of a node, together. Their outcomes come in the same order.
pub(super) fn decide_together<R: Route>(
    route: &Arc<R>,
    node: &Arc<Node>,
    demands: impl IntoIterator<Item = Demand>,
) -> Vec<Result<Receipt, Error>> {
    let receipts = {
        let mut state = node.queue().lock();
        demands.into_iter().map(|demand| state.line_up(demand)).collect()
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

/// The promise of an outcome.
#[derive(Debug)]
pub(super) struct Receipt {
    outcome: oneshot::Receiver<Outcome>,
    deadline: Instant,
}

impl Receipt {
    async fn outcome(self) -> Outcome {
        self.outcome.await.unwrap_or_else(|_| Err(missing(self.deadline)))
    }

    /// What has come by the deadline.
    async fn outcome_in_time(self) -> Outcome {
        timeout_at(self.deadline, self.outcome()).await.unwrap_or_else(|_| Err(late()))
    }
}

/// Why nobody answers: whoever waits beyond the deadline is left behind.
fn missing(deadline: Instant) -> Error {
    if Instant::now() >= deadline {
        return late();
    }
    Error::new(ErrorKind::Connection, "the call ended together with the runtime that it ran on")
}

enum Entered<R: Route> {
    Alone(Alone<R>, Demand),
    Waiting(Receipt),
}

fn enter<R: Route>(route: &Arc<R>, node: &Arc<Node>, demand: Demand) -> Result<Entered<R>, Error> {
    let receipt = {
        let mut state = node.queue().lock();
        if state.flights.is_empty() && state.batches.is_empty() && !state.is_closed {
            let number = state.take_off(demand.deadline);
            let alone = Alone { route: Arc::clone(route), node: Arc::clone(node), number };
            return Ok(Entered::Alone(alone, demand));
        }
        state.line_up(demand)?
    };
    send_waiting(route, node);
    Ok(Entered::Waiting(receipt))
}

/// Lets a flight take along those who wait, if one more may be under way.
fn send_waiting<R: Route>(route: &Arc<R>, node: &Arc<Node>) {
    if Handle::try_current().is_err() {
        return;
    }
    let Some(number) = node.queue().lock().take_off_for_waiting() else { return };
    let line = Line { route: Arc::clone(route), node: Arc::clone(node), number };
    node.queue().spawn(async move {
        while let Some(groups) = line.take() {
            send(&line.route, &line.node, groups).await;
        }
    });
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a task that ends with the queue. Not to be called under the lock: a runtime that is about to end drops it at once.
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task);
    }

    /// Ends all that is under way.
    pub(super) fn close(&self) {
        let replies = {
            let mut state = self.lock();
            state.is_closed = true;
            state.batches.drain()
        };
        replies.for_each(|reply| drop(reply.send(Err(closed()))));
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).abort_all();
    }
}

impl State {
    fn take_off(&mut self, until: Instant) -> u64 {
        self.last += 1;
        self.flights.push(Flight { number: self.last, until });
        self.last
    }

    fn land(&mut self, number: u64) {
        self.flights.retain(|flight| flight.number != number);
    }

    fn take_off_for_waiting(&mut self) -> Option<u64> {
        if self.batches.is_empty() || self.is_closed {
            return None;
        }
        let now = Instant::now();
        if self.flights.len() >= MOST_FLIGHTS {
            self.flights.retain(|flight| now < flight.until + LOST_AFTER);
        }
        (self.flights.len() < MOST_FLIGHTS).then(|| self.take_off(now))
    }

    fn line_up(&mut self, demand: Demand) -> Result<Receipt, Error> {
        if self.is_closed {
            return Err(closed());
        }
        let (reply, outcome) = oneshot::channel();
        let deadline = demand.deadline;
        let full = |_| Error::new(ErrorKind::Unavailable, "too many callers are waiting for the store already");
        self.batches.push(demand, reply).map_err(full)?;
        Ok(Receipt { outcome, deadline })
    }

    /// Who goes next on a flight, which lands when there is nobody.
    fn board(&mut self, number: u64) -> Vec<Vec<Group<Reply>>> {
        let now = Instant::now();
        let Some(flight) = self.flights.iter_mut().find(|flight| flight.number == number) else { return Vec::new() };
        let groups = self.batches.take(|waiter| waiter.deadline <= now || waiter.reply.is_closed());
        let latest = groups.iter().flatten().filter_map(Group::deadline).max();
        match latest {
            Some(latest) => flight.until = latest,
            None => self.land(number),
        }
        groups
    }
}

/// The flight of one caller alone. Those who wait meanwhile go on when it has landed, also where the caller went away.
struct Alone<R: Route> {
    route: Arc<R>,
    node: Arc<Node>,
    number: u64,
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
    let calls = batches.iter().map(|batch| &batch.call).collect();
    let error = match timeout_at(until, node.run_all(calls)).await {
        Ok(Ok(outcomes)) => {
            for (batch, outcome) in batches.into_iter().zip(outcomes) {
                settle(route, node, batch, outcome);
            }
            return;
        }
        Ok(Err(error)) => error,
        Err(_) => late(),
    };
    route.unanswered();
    batches.into_iter().for_each(|batch| answer(batch.waiters, Err(error.clone())));
}

/// Answers a call, or sends it to wherever it must go.
fn settle<R: Route>(route: &Arc<R>, node: &Arc<Node>, batch: Batch<Reply>, outcome: Result<redis::Value, Failure>) {
    let failure = match outcome {
        Ok(reply) => return answer(batch.waiters, batch.call.parse(reply)),
        Err(failure) => failure,
    };
    let (route, first) = (Arc::clone(route), (Arc::clone(node), failure));
    let Some(deadline) = batch.deadline() else { return };
    node.queue().spawn(async move {
        let again = route.run(&batch.call, batch.slot, Some(first));
        let answers = timeout_at(deadline, again).await.unwrap_or_else(|_| Err(late()));
        answer(batch.waiters, answers);
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
