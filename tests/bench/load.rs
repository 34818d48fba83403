//! Callers that ask again as soon as they have their answer. The same code for every contender.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use crate::cpu;
use crate::keys::Keys;
use crate::place::Place;
use crate::sample::{Metric, Sample, quantile};

/// How a caller paces itself.
#[derive(Clone, Copy)]
struct Pace {
    /// Every so manyth call is timed: often where a call takes long beside the look at the clock, else seldom.
    timed: usize,
    /// Whether it lets others have a turn after that many.
    yields: bool,
}

/// Something that decides. Each caller has a clone.
pub(crate) trait Subject: Clone + Send + Sync + 'static {
    /// A key in the form that costs the least later.
    type Key: Send + Sync + 'static;
    /// Whether most calls are answered without waiting, so that a task must give way by itself.
    const IS_LOCAL: bool = false;

    fn key(&self, name: &str) -> Self::Key;

    /// Whether the key is allowed one more.
    fn check(&mut self, key: &Self::Key) -> impl Future<Output = Result<bool, String>> + Send;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Callers {
    /// On one runtime that all share.
    Tasks(usize),
    /// Each on a thread of its own.
    Threads(usize),
}

impl Callers {
    pub(crate) const fn count(self) -> usize {
        match self {
            Self::Tasks(count) | Self::Threads(count) => count,
        }
    }
}

/// All keys and their order, made once for all runs of one contender.
struct Course<K> {
    keys: Vec<K>,
    order: Vec<u32>,
    stop: AtomicBool,
}

/// What one caller saw.
#[derive(Default)]
struct Tally {
    calls: u64,
    allowed: u64,
    nanoseconds: Vec<u32>,
}

/// Warms up, and then measures for `time`.
pub(crate) fn run<S: Subject>(
    runtime: &Runtime,
    place: &Place,
    subject: &S,
    (keys, callers): (Keys, Callers),
    (warm_up, time): (Duration, Duration),
) -> Result<Sample, String> {
    let all = keys.names().iter().map(|name| subject.key(name)).collect();
    let course = Arc::new(Course { keys: all, order: keys.order(), stop: AtomicBool::new(false) });
    drive(runtime, subject, &course, callers, warm_up)?;
    course.stop.store(false, Ordering::Relaxed);
    place.reset_calls();
    let (cpu_before, servers_before, start) = (cpu::own(), place.cpu(), Instant::now());
    let tally = drive(runtime, subject, &course, callers, time)?;
    let seconds = start.elapsed().as_secs_f64();
    let cpu = cpu::own().saturating_sub(cpu_before);
    let servers = place.cpu().zip(servers_before).map(|(after, before)| after.saturating_sub(before));
    Ok(sample(tally, callers, seconds, cpu, servers.filter(|_| !place.servers().is_empty()), place.calls()))
}

fn sample(
    mut tally: Tally,
    callers: Callers,
    seconds: f64,
    cpu: Duration,
    servers: Option<Duration>,
    store_calls: u64,
) -> Sample {
    tally.nanoseconds.sort_unstable();
    let calls = tally.calls as f64;
    let latency = |part| quantile(&tally.nanoseconds, part).map(|nanoseconds| f64::from(nanoseconds) / 1e3);
    let each = |time: Duration| time.as_secs_f64() * 1e6 / calls;
    let mut sample = Sample::default();
    sample.set(Metric::PerSecond, Some(calls / seconds));
    sample.set(Metric::P50, latency(0.5));
    sample.set(Metric::P99, latency(0.99));
    sample.set(Metric::P999, latency(0.999));
    sample.set(Metric::ClientCpu, Some(each(cpu)));
    sample.set(Metric::ServerCpu, servers.map(each));
    sample.set(Metric::StoreCalls, Some(store_calls as f64 / calls));
    sample.set(Metric::Allowed, Some(tally.allowed as f64 / calls));
    sample.set(Metric::Nanoseconds, Some(seconds * 1e9 * callers.count() as f64 / calls));
    sample
}

/// The time is kept by this thread, which has nothing else to do, and not by the busy runtime.
fn drive<S: Subject>(
    runtime: &Runtime,
    subject: &S,
    course: &Arc<Course<S::Key>>,
    callers: Callers,
    time: Duration,
) -> Result<Tally, String> {
    let start = |number: usize| course.order.len() / callers.count() * number;
    let call = |number, pace| caller(subject.clone(), Arc::clone(course), start(number), pace);
    let tallies = match callers {
        Callers::Tasks(count) => {
            let pace = Pace { timed: 8, yields: S::IS_LOCAL };
            let tasks: Vec<_> = (0..count).map(|number| runtime.spawn(call(number, pace))).collect();
            stop_after(time, &course.stop);
            let ended =
                |task: JoinHandle<Result<Tally, String>>| runtime.block_on(task).map_err(|error| error.to_string())?;
            tasks.into_iter().map(ended).collect::<Result<Vec<Tally>, String>>()
        }
        Callers::Threads(count) => thread::scope(|scope| {
            let spawn = |number| {
                let call = call(number, Pace { timed: 64, yields: false });
                scope.spawn(move || runtime.block_on(call))
            };
            let threads: Vec<_> = (0..count).map(spawn).collect();
            stop_after(time, &course.stop);
            threads.into_iter().map(|thread| thread.join().map_err(|_| "a caller panicked".to_owned())?).collect()
        }),
    };
    Ok(tallies?.into_iter().fold(Tally::default(), Tally::and))
}

fn stop_after(time: Duration, stop: &AtomicBool) {
    thread::sleep(time);
    stop.store(true, Ordering::Relaxed);
}

impl Tally {
    fn and(mut self, other: Self) -> Self {
        self.calls += other.calls;
        self.allowed += other.allowed;
        self.nanoseconds.extend(other.nanoseconds);
        self
    }

    fn add(&mut self, is_allowed: bool) {
        self.calls += 1;
        self.allowed += u64::from(is_allowed);
    }
}

async fn caller<S: Subject>(
    mut subject: S,
    course: Arc<Course<S::Key>>,
    mut position: usize,
    pace: Pace,
) -> Result<Tally, String> {
    let mut tally = Tally::default();
    let mut next = || {
        position = if position + 1 < course.order.len() { position + 1 } else { 0 };
        &course.keys[course.order[position] as usize]
    };
    while !course.stop.load(Ordering::Relaxed) {
        let start = Instant::now();
        tally.add(subject.check(next()).await?);
        tally.nanoseconds.push(u32::try_from(start.elapsed().as_nanos()).unwrap_or(u32::MAX));
        for _ in 1..pace.timed {
            if course.stop.load(Ordering::Relaxed) {
                break;
            }
            tally.add(subject.check(next()).await?);
        }
        if pace.yields {
            tokio::task::yield_now().await;
        }
    }
    Ok(tally)
}
