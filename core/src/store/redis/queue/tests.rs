use std::sync::Arc;

use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::sync::{Arc as LoomArc, Mutex as LoomMutex};
use loom::thread;

use super::*;
use crate::limit::Limits;
use crate::store::redis::batch::Batch;
use crate::store::redis::batch::tests::Callers;

/// Counts those who were answered.
struct Counted(LoomArc<AtomicUsize>);

impl WaitsFor for Counted {
    fn is_gone(&self) -> bool {
        false
    }
}

type Shared = LoomArc<LoomMutex<State<Counted>>>;

fn limits() -> Arc<Limits> {
    Arc::new("10/s".parse().unwrap())
}

/// What `flight::send_waiting` does, with a thread for the task.
fn send_waiting(shared: &Shared) -> Option<thread::JoinHandle<()>> {
    let number = shared.lock().unwrap().take_off_for_waiting(Instant::now())?;
    let shared = LoomArc::clone(shared);
    Some(thread::spawn(move || {
        loop {
            let groups = shared.lock().unwrap().board(number);
            if groups.is_empty() {
                return;
            }
            for waiter in groups.into_iter().filter_map(Batch::of).flat_map(|batch| batch.waiting) {
                waiter.reply.0.fetch_add(1, Ordering::Relaxed);
            }
        }
    }))
}

/// What `flight::decide` does.
fn ask(
    shared: &Shared,
    limits: &Arc<Limits>,
    key: &str,
    answered: &LoomArc<AtomicUsize>,
) -> Option<thread::JoinHandle<()>> {
    let callers = Callers::new();
    let demand = callers.demand(limits, key, 1);
    let alone = shared.lock().unwrap().take_off_alone(demand.deadline());
    if let Some(number) = alone {
        answered.fetch_add(1, Ordering::Relaxed);
        shared.lock().unwrap().land(number);
    } else {
        let reply = Counted(LoomArc::clone(answered));
        assert!(shared.lock().unwrap().line_up(&demand, demand.keys(), reply).is_ok());
    }
    send_waiting(shared)
}

#[test]
fn nobody_is_left_waiting_however_threads_come_and_go() {
    loom::model(|| {
        let shared = Shared::default();
        let answered = LoomArc::new(AtomicUsize::new(0));
        let limits = limits();
        let other = {
            let (shared, answered, limits) = (LoomArc::clone(&shared), LoomArc::clone(&answered), Arc::clone(&limits));
            thread::spawn(move || ask(&shared, &limits, "b", &answered).map(thread::JoinHandle::join))
        };
        let flight = ask(&shared, &limits, "a", &answered);
        other.join().unwrap();
        if let Some(flight) = flight {
            flight.join().unwrap();
        }
        let state = shared.lock().unwrap();
        assert_eq!(answered.load(Ordering::Relaxed), 2);
        assert!(state.batches.is_empty() && state.flights.is_empty());
    });
}
