//! What callers see while sentinels replace the master.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use grifo::{Client, Decision, ErrorKind, Limiter};
use grifo_tests::case::{eventually, every_key, patient};
use grifo_tests::{CommandStats, Sentinels, Server, ServerKind, server_binary};
use tokio::sync::Mutex;

const SECOND: Duration = Duration::from_secs(1);
/// How soon after a change of masters all is as before.
const SOON: Duration = Duration::from_secs(5);

/// Six servers share few cores: one deployment at a time.
static TURN: Mutex<()> = Mutex::const_new(());

fn default_kind() -> ServerKind {
    server_binary::installed()[0].kind
}

/// A limiter whose answers tell what went wrong, within a deadline that a busy machine can keep.
fn hasty(all: &Sentinels) -> Limiter {
    Client::builder(all.url()).timeout(SECOND / 4).build().unwrap().limiter("case", "1000000/20000d").unwrap()
}

async fn normal(limiter: &Limiter) {
    let started = Instant::now();
    eventually("a decision of the store", SOON, async || !limiter.check("k").await.unwrap().degraded()).await;
    println!("normal after {:?}", started.elapsed());
}

/// Keeps on hitting a key from a task of its own, until told to end.
struct Load {
    end: Arc<AtomicBool>,
    /// How many decisions the store has made since one that it did not, or since somebody looked.
    in_a_row: Arc<AtomicUsize>,
    task: tokio::task::JoinHandle<Vec<(Instant, Decision)>>,
}

impl Load {
    fn start(limiter: &Limiter) -> Self {
        let (end, in_a_row) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (limiter, ended, counted) = (limiter.clone(), Arc::clone(&end), Arc::clone(&in_a_row));
        let task = tokio::spawn(async move {
            let mut decisions = Vec::new();
            while !ended.load(Ordering::Relaxed) {
                let (asked, decision) = (Instant::now(), limiter.check("k").await.unwrap());
                if decision.degraded() {
                    counted.store(0, Ordering::Relaxed);
                } else {
                    counted.fetch_add(1, Ordering::Relaxed);
                }
                decisions.push((asked, decision));
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            decisions
        });
        Self { end, in_a_row, task }
    }

    /// Waits until the store makes one decision after the other.
    async fn is_normal(&self) {
        self.in_a_row.store(0, Ordering::Relaxed);
        let is_normal = async || self.in_a_row.load(Ordering::Relaxed) >= 20;
        eventually("decisions of the store", SOON, is_normal).await;
    }

    /// Every decision, and when it was asked for.
    async fn end(self) -> Vec<(Instant, Decision)> {
        self.end.store(true, Ordering::Relaxed);
        self.task.await.unwrap()
    }
}

/// The time from the first decision that the store did not make to the last, and the reasons.
fn disturbance(decisions: &[(Instant, Decision)]) -> (Duration, Vec<ErrorKind>) {
    let degraded: Vec<_> = decisions.iter().filter(|(_, decision)| decision.degraded()).collect();
    let reasons = degraded.iter().filter_map(|(_, decision)| decision.reason).collect();
    match (degraded.first(), degraded.last()) {
        (Some((first, _)), Some((last, _))) => (*last - *first, reasons),
        _ => (Duration::ZERO, reasons),
    }
}

/// Does what blocks a thread, such as waiting for sentinels.
async fn blocking<T: Send + 'static>(
    all: Sentinels,
    work: impl FnOnce(&mut Sentinels) -> T + Send + 'static,
) -> (Sentinels, T) {
    let work = move || {
        let mut all = all;
        let outcome = work(&mut all);
        (all, outcome)
    };
    tokio::task::spawn_blocking(work).await.unwrap()
}

/// Connections of the client under test.
fn connections(server: &Server) -> usize {
    let list: String = server.command(&["CLIENT", "LIST", "TYPE", "normal"]);
    list.lines().filter(|line| line.contains("cmd=eval") || line.contains("cmd=hello")).count()
}

/// Script calls that ran to their end, on all servers together.
fn scripts_run(all: &Sentinels) -> u64 {
    let of_server = |server: &Server| -> u64 {
        let stats = CommandStats::read(server);
        let of = |command| stats.of(command).calls - stats.of(command).failed_calls;
        of("evalsha") + of("eval")
    };
    all.servers().iter().map(of_server).sum()
}

async fn a_failover_by_command_disturbs_little_and_sends_nothing_twice(kind: ServerKind) {
    let all = Sentinels::start(kind);
    let limiter = hasty(&all);
    normal(&limiter).await;
    let old = all.master();
    // The record of partitions, which is not made again so soon.
    eventually("the record", SOON, async || every_key(all.server(old)).len() == 2).await;
    all.servers().iter().for_each(CommandStats::reset);
    let load = Load::start(&limiter);
    let (all, new) = blocking(all, |all| all.failover()).await;
    assert_ne!(new, old);
    load.is_normal().await;
    let decisions = load.end().await;
    let (lasted, reasons) = disturbance(&decisions);
    println!("{kind}: {} of {} degraded within {lasted:?}: {reasons:?}", reasons.len(), decisions.len());
    assert!(lasted < SOON, "{kind}: {lasted:?}, {reasons:?}");
    let by_store = decisions.len() - reasons.len();
    let run = usize::try_from(scripts_run(&all)).unwrap();
    assert!((by_store..=decisions.len()).contains(&run), "{kind}: {run} ran of {}, {reasons:?}", decisions.len());
    assert_eq!((connections(all.server(old)), connections(all.server(new))), (0, 1), "{kind}");
}

#[tokio::test]
async fn a_failover_by_command_disturbs_little() {
    let _turn = TURN.lock().await;
    for binary in server_binary::installed() {
        a_failover_by_command_disturbs_little_and_sends_nothing_twice(binary.kind).await;
    }
}

#[tokio::test]
async fn a_master_that_dies_is_replaced_and_comes_back_as_a_replica() {
    let _turn = TURN.lock().await;
    let all = Sentinels::start(default_kind());
    let limiter = hasty(&all);
    normal(&limiter).await;
    let load = Load::start(&limiter);
    let (all, old) = blocking(all, Sentinels::kill_master).await;
    let (all, new) = blocking(all, move |all| all.wait_other_master(old)).await;
    load.is_normal().await;
    println!("disturbed for {:?}", disturbance(&load.end().await).0);
    let load = Load::start(&limiter);
    let (all, ()) = blocking(all, move |all| {
        all.server_mut(old).restart();
        all.wait_ready();
    })
    .await;
    let (_, reasons) = disturbance(&load.end().await);
    assert_eq!((all.master(), reasons), (new, vec![]));
    assert_eq!((connections(all.server(old)), connections(all.server(new))), (0, 1));
}

#[tokio::test]
async fn a_master_that_hangs_is_replaced_though_it_goes_on_hanging() {
    let _turn = TURN.lock().await;
    let all = Sentinels::start(default_kind());
    let limiter = hasty(&all);
    normal(&limiter).await;
    let old = all.master();
    all.server(old).stop();
    let load = Load::start(&limiter);
    let (all, new) = blocking(all, move |all| all.wait_other_master(old)).await;
    load.is_normal().await;
    let (lasted, reasons) = disturbance(&load.end().await);
    println!("disturbed for {lasted:?}");
    assert!(reasons.iter().all(|reason| matches!(reason, ErrorKind::Timeout | ErrorKind::Connection)), "{reasons:?}");
    let load = Load::start(&limiter);
    let (all, ()) = blocking(all, move |all| {
        all.server(old).cont();
        all.wait_ready();
    })
    .await;
    let (_, reasons) = disturbance(&load.end().await);
    assert_eq!(reasons, vec![], "the old one is a replica by now");
    eventually("no connection to it", SOON, async || connections(all.server(old)) == 0).await;
    assert_eq!(connections(all.server(new)), 1);
}

#[tokio::test]
async fn a_sentinel_that_hangs_does_not_delay_the_news() {
    let _turn = TURN.lock().await;
    let all = Sentinels::start(default_kind());
    // So patient that waiting for the one that hangs would show.
    let client = Client::builder(all.url()).timeout(SECOND / 4).connect_timeout(30 * SECOND).build().unwrap();
    let limiter = client.limiter("case", "1000000/20000d").unwrap();
    normal(&limiter).await;
    all.sentinels()[0].stop();
    let load = Load::start(&limiter);
    let (all, old) = blocking(all, Sentinels::kill_master).await;
    let (all, _) = blocking(all, move |all| all.wait_other_master(old)).await;
    load.is_normal().await;
    println!("disturbed for {:?}", disturbance(&load.end().await).0);
    all.sentinels()[0].cont();
}

#[tokio::test]
async fn who_only_peeks_follows_the_master_too() {
    let _turn = TURN.lock().await;
    let all = Sentinels::start(default_kind());
    let client = || patient(&all.url()).build().unwrap().limiter("case", "10/20000d").unwrap();
    let (peeking, hitting) = (client(), client());
    assert_eq!(peeking.peek("k").await.unwrap().remaining, 10);
    let (all, new) = blocking(all, |all| all.failover()).await;
    let peeks = async || peeking.peek("k").await.is_ok_and(|peeked| peeked.remaining == 10);
    eventually("an answer", SOON, peeks).await;
    eventually("a hit", SOON, async || hitting.check("k").await.is_ok()).await;
    let left = async || peeking.peek("k").await.is_ok_and(|peeked| peeked.remaining == 9);
    eventually("what the new master says", SOON, left).await;
    assert_eq!(connections(all.server(new)), 2);
}
