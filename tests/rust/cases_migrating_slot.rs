//! A slot that is on its way: some of its keys are on one master, some on the other, and new ones belong to the other.

use std::time::{Duration, Instant};

use grifo::{Client, Decision, ErrorKind, FailurePolicy, Limiter, Source};
use grifo_tests::case::{START, check_at, peek_at};
use grifo_tests::cluster::Cluster;
use grifo_tests::cluster_case::{TURN, client, default_kind, keys};

const SECOND: Duration = Duration::from_secs(1);

/// A cluster in which a slot is on its way, and the keys of that slot.
struct HalfMoved {
    cluster: Cluster,
    from: usize,
    to: usize,
    slot: u16,
    keys: Vec<String>,
}

impl HalfMoved {
    /// Checks many keys once, and begins to move the slot of one of them. No key moves yet.
    async fn begin(limiter: impl FnOnce(&str) -> Limiter, now: Option<Duration>) -> (Self, Limiter) {
        let cluster = Cluster::start(default_kind(), 3, 0);
        let limiter = limiter(&cluster.url());
        let names = keys(640);
        for name in &names {
            let decision = match now {
                Some(now) => check_at(&limiter, now, name, 1).await,
                None => limiter.check(name).await.unwrap(),
            };
            assert!(decision.allowed && !decision.degraded());
        }
        let slot = cluster.slot_of_stored(&names[0]);
        let keys: Vec<_> = names.into_iter().filter(|name| cluster.slot_of_stored(name) == slot).collect();
        let from = cluster.master_of_slot(slot).unwrap();
        let to = *cluster.masters().iter().find(|master| **master != from).unwrap();
        cluster.begin_migration(slot, from, to);
        (Self { cluster, from, to, slot, keys }, limiter)
    }

    /// Moves all that is stored of some keys.
    fn move_keys(&self, keys: &[String]) {
        let stored: Vec<_> = keys.iter().flat_map(|key| self.cluster.stored(key).1).collect();
        self.cluster.migrate_keys(self.from, self.to, &stored);
    }
}

#[tokio::test]
async fn a_slot_that_is_half_moved_is_served_from_both_nodes() {
    let _turn = TURN.lock().await;
    let cluster = Cluster::start(default_kind(), 3, 0);
    let limiter = client(&cluster.url(), FailurePolicy::Raise)
        .limiter("case", "1000/20000d + sliding-window 999/20000d")
        .unwrap();
    let keys = keys(640);
    let all = |amount: u64| limiter.check_many(keys.iter().map(move |key| (key.clone(), amount)));
    assert!(all(1).await.unwrap().iter().all(|decision| decision.allowed));
    let slot = cluster.slot_of_stored(&keys[0]);
    let from = cluster.master_of_slot(slot).unwrap();
    let to = *cluster.masters().iter().find(|master| **master != from).unwrap();
    cluster.begin_migration(slot, from, to);
    // Both keys of one caller's key move, those of the others stay.
    let stored: Vec<String> = cluster.node(from).command(&["KEYS", &format!("*:={}", keys[0])]);
    assert_eq!(stored.len(), 2);
    cluster.migrate_keys(from, to, &stored);
    cluster.node(to).command::<(), _>(&["SCRIPT", "FLUSH"]);
    assert!(all(1).await.unwrap().iter().all(|decision| decision.allowed && !decision.degraded()));
    cluster.finish_migration(slot, from, to);
    for key in &keys {
        assert_eq!(limiter.peek(key).await.unwrap().limits[0].remaining, 998, "{key}");
    }
}

/// How long each of some calls took, and what it was answered.
struct Tries(Vec<(Duration, Vec<Decision>)>);

impl Tries {
    const COUNT: usize = 40;

    /// Checks keys, each time by the limiter that is made for it.
    async fn of(keys: &[String], limiter: impl Fn(usize) -> Limiter) -> Self {
        let mut tries = Vec::new();
        for number in 0..Self::COUNT {
            let (limiter, started) = (limiter(number), Instant::now());
            let decisions = limiter.check_many(keys.iter().map(|key| (key, 1))).await.unwrap();
            tries.push((started.elapsed(), decisions));
        }
        Self(tries)
    }

    fn median(&self) -> Duration {
        let mut times: Vec<_> = self.0.iter().map(|(time, _)| *time).collect();
        times.sort_unstable();
        times[times.len() / 2]
    }

    /// How many calls gave every key this reason.
    fn with_reason(&self, expected: Option<ErrorKind>) -> usize {
        let is_so = |decisions: &[Decision]| decisions.iter().all(|decision| decision.reason == expected);
        self.0.iter().filter(|(_, decisions)| is_so(decisions)).count()
    }

    /// Most calls end so, and within the default deadline; the others were too late on a busy machine.
    fn assert_mostly(&self, expected: Option<ErrorKind>, what: &str) {
        println!("{what}: median {:?}, {} of {} as expected", self.median(), self.with_reason(expected), Self::COUNT);
        assert!(self.median() < Duration::from_millis(50), "{what}: {:?}", self.median());
        assert!(self.with_reason(expected) > Self::COUNT / 2, "{what}");
        let mut reasons = self.0.iter().flat_map(|(_, decisions)| decisions).map(|decision| decision.reason);
        let odd = reasons.find(|reason| *reason != expected && *reason != Some(ErrorKind::Timeout));
        assert_eq!(odd, None, "{what}");
    }

    /// How often the store decided on a key, and how often not.
    fn of_key(&self, place: usize) -> (u64, u64) {
        let (decided, degraded): (Vec<_>, _) = self.0.iter().partition(|(_, decisions)| !decisions[place].degraded());
        (decided.len() as u64, degraded.len() as u64)
    }
}

#[tokio::test]
async fn many_keys_of_a_slot_that_is_on_its_way_are_decided_within_the_default_deadline() {
    let _turn = TURN.lock().await;
    let patient = |url: &str| client(url, FailurePolicy::Raise).limiter("case", "1000/20000d").unwrap();
    let (scene, patient) = HalfMoved::begin(patient, None).await;
    scene.move_keys(&scene.keys[..scene.keys.len() / 2]);
    let client = Client::open(scene.cluster.url()).unwrap();
    client.connect(10 * SECOND).await.unwrap();
    scene.cluster.node(scene.to).command::<(), _>(&["SCRIPT", "FLUSH"]);
    let half_moved = Tries::of(&scene.keys, |_| client.limiter("case", "1000/20000d").unwrap()).await;
    half_moved.assert_mostly(None, "half of the keys moved");
    let new = Tries::of(&scene.keys, |number| client.limiter(format!("new {number}"), "1000/20000d").unwrap()).await;
    new.assert_mostly(None, "keys that are new");
    scene.cluster.finish_migration(scene.slot, scene.from, scene.to);
    for (place, key) in scene.keys.iter().enumerate() {
        let charged = 1000 - patient.peek(key).await.unwrap().remaining;
        let (decided, degraded) = half_moved.of_key(place);
        assert!((1 + decided..=1 + decided + degraded).contains(&charged), "{key}: {charged} of {decided}, {degraded}");
    }
}

/// The servers refuse to make several keys in a slot that is on its way, so the policy answers until it has arrived.
#[tokio::test]
async fn a_new_key_of_several_limits_waits_for_its_slot_and_says_so() {
    const LIMITS: &str = "1000/20000d + fixed-window 1000/20000d";
    let _turn = TURN.lock().await;
    let patient = |url: &str| client(url, FailurePolicy::Raise).limiter("case", "1000/20000d").unwrap();
    let (scene, _) = HalfMoved::begin(patient, None).await;
    let client = Client::open(scene.cluster.url()).unwrap();
    client.connect(10 * SECOND).await.unwrap();
    let tries = Tries::of(&scene.keys[..1], |number| client.limiter(format!("new {number}"), LIMITS).unwrap()).await;
    tries.assert_mostly(Some(ErrorKind::Cluster), "a new key of several limits");
    scene.cluster.finish_migration(scene.slot, scene.from, scene.to);
    for number in 0..Tries::COUNT {
        let limiter = client.limiter(format!("new {number}"), LIMITS).unwrap().timeout(10 * SECOND).unwrap();
        let decision = limiter.check(&scene.keys[0]).await.unwrap();
        assert_eq!((decision.source, decision.remaining), (Source::Store, 999), "nothing was charged meanwhile");
    }
}

#[tokio::test]
async fn a_log_of_which_nothing_counts_is_replaced_while_its_slot_is_on_its_way() {
    let _turn = TURN.lock().await;
    let patient = |url: &str| client(url, FailurePolicy::Raise).limiter("case", "sliding-window 5/s").unwrap();
    let (scene, limiter) = HalfMoved::begin(patient, Some(START)).await;
    for key in &scene.keys {
        let decision = check_at(&limiter, START + 2 * SECOND, key, 1).await;
        assert!(decision.allowed && decision.remaining == 4, "{decision:?}");
        assert_eq!(peek_at(&limiter, START + 2 * SECOND, key).await.remaining, 4);
    }
}
