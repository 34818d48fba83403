//! How decisions travel to one node: at once where none is under way, else together with whoever waits.
//!
//! A lone caller sends its own call. While calls are in flight others wait (see [`batch`](super::batch)), and a task takes them
//! along, one write after another, until nobody waits. There are never more than a few such flights, each with a deadline:
//! that of the last of its callers. One that is long past it runs on a runtime that nobody drives any more, and no longer
//! counts.

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};

use super::batch::{Batch, Batches, Demand, Group, Waiter};
use super::call::Call;
use super::node::Node;
use super::reply::Failure;
use crate::error::{Error, ErrorKind, closed, late};
use crate::key::StoredKeys;
use crate::store::{Answers, Asked, Told};

/// How many writes to a node may be under way at once.
const MOST_FLIGHTS: usize = 2;
/// Requests without a reply count as in flight for so much longer than their callers wait.
const STILL_IN_FLIGHT: Duration = Duration::from_millis(200);
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
        first: Option<(Arc<Node>, Failure)>,
    ) -> impl Future<Output = Result<Answers, Error>> + Send;

    /// Takes note that a node cannot be reached, or did not answer.
    fn unanswered(&self);
}

/// The decisions that are under way to a node, and those that wait.
#[derive(Debug, Default)]
pub(super) struct Queue {
    state: Mutex<State<Reply>>,
    tasks: Mutex<JoinSet<()>>,
}

#[derive(Debug)]
struct State<R> {
    batches: Batches<R>,
    flights: Vec<Flight>,
    /// The number of the last flight.
    last: u64,
    is_closed: bool,
}

/// The other end of a caller's wait.
trait WaitsFor {
    /// Whether the caller went away.
    fn is_gone(&self) -> bool;
}

impl WaitsFor for Reply {
    fn is_gone(&self) -> bool {
        self.is_closed()
    }
}

#[derive(Debug)]
struct Flight {
    number: u64,
    until: Instant,
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

/// The promise of an outcome.
#[derive(Debug)]
pub(crate) struct Receipt {
    outcome: oneshot::Receiver<Outcome>,
    deadline: Instant,
}

impl Receipt {
    pub(crate) async fn outcome(self) -> Outcome {
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
    Alone(Alone<R>),
    Waiting(Receipt),
}

fn enter<R: Route>(route: &Arc<R>, node: &Arc<Node>, demand: &Demand<'_>) -> Result<Entered<R>, Error> {
    let deadline = demand.deadline();
    let (reply, outcome) = oneshot::channel();
    let reply = {
        let mut state = node.queue().lock();
        if let Some(number) = state.take_off_alone(deadline) {
            return Ok(Entered::Alone(Alone { route: Arc::clone(route), node: Arc::clone(node), number }));
        }
        match state.join(demand, reply) {
            Ok(()) => return Ok(Entered::Waiting(Receipt { outcome, deadline })),
            Err(reply) => reply,
        }
    };
    // Not under the lock.
    let keys = demand.keys();
    let flight = {
        let mut state = node.queue().lock();
        state.line_up(demand, keys, reply)?;
        state.take_off_for_waiting()
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
    let flight = node.queue().lock().take_off_for_waiting();
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

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State<Reply>> {
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

impl<R> Default for State<R> {
    fn default() -> Self {
        Self { batches: Batches::default(), flights: Vec::new(), last: 0, is_closed: false }
    }
}

impl<R: WaitsFor> State<R> {
    fn take_off(&mut self, until: Instant) -> u64 {
        self.last += 1;
        self.flights.push(Flight { number: self.last, until });
        self.last
    }

    /// Begins the flight of a caller alone, if nobody is under way or waits.
    fn take_off_alone(&mut self, deadline: Instant) -> Option<u64> {
        let is_idle = self.flights.is_empty() && self.batches.is_empty() && !self.is_closed;
        is_idle.then(|| self.take_off(deadline))
    }

    /// Begins a flight of those who wait, if there may be one more.
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

    fn land(&mut self, number: u64) {
        self.flights.retain(|flight| flight.number != number);
    }

    /// Lets a caller share what others ask, who wait already.
    fn join(&mut self, demand: &Demand<'_>, reply: R) -> Result<(), R> {
        if self.is_closed { Err(reply) } else { self.batches.join(demand, reply) }
    }

    fn line_up(&mut self, demand: &Demand<'_>, keys: StoredKeys, reply: R) -> Result<(), Error> {
        if self.is_closed {
            return Err(closed());
        }
        let full = |_| Error::new(ErrorKind::Unavailable, "too many callers are waiting for the store already");
        self.batches.push(demand, keys, reply).map_err(full)
    }

    /// Who goes next on a flight, which lands when there is nobody.
    fn board(&mut self, number: u64) -> Vec<Vec<Group<R>>> {
        let now = Instant::now();
        let Some(flight) = self.flights.iter_mut().find(|flight| flight.number == number) else { return Vec::new() };
        let groups = self.batches.take(|waiter| waiter.deadline <= now || waiter.reply.is_gone());
        match groups.iter().flatten().filter_map(Group::deadline).max() {
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

#[cfg(test)]
mod tests;
