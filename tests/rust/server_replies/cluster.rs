//! What a node of a cluster refuses.

use grifo::{Client, Decision, Error, FailurePolicy, Limiter};
use grifo_tests::cluster::Cluster;
use grifo_tests::{Server, ServerKind};
use tokio::sync::Mutex;

use crate::scene::{Meeting, PATIENCE, Then, limiter, refusal, row};
use crate::table::Row;

/// Clusters share few cores: one at a time.
static TURN: Mutex<()> = Mutex::const_new(());

/// Two masters, a limiter that knows them, and the slot of one of its keys.
struct Scene {
    cluster: Cluster,
    limiter: Limiter,
    /// The owner of the slot, the other master, and the slot.
    from: usize,
    to: usize,
    slot: u16,
    /// Keys of the slot, as the caller names them.
    keys: Vec<String>,
}

impl Scene {
    async fn start(kind: ServerKind) -> Self {
        let cluster = Cluster::start(kind, 2, 0);
        let limiter = limiter(&cluster.url());
        // So many that several share a slot.
        let names: Vec<String> = (0..640).map(|number| format!("key-{number}")).collect();
        let _ = limiter.check_many(names.iter().map(|name| (name, 1))).await.unwrap();
        let (from, stored) = cluster.stored(&names[0]);
        let (tag, _) = stored[0].split_once('}').unwrap();
        let of_slot: Vec<String> = cluster.node(from).command(&["KEYS", &format!("{tag}}}*")]);
        let keys = of_slot.iter().map(|stored| stored.rsplit_once('=').unwrap().1.to_owned()).collect();
        let slot = cluster.slot_of_key(&stored[0]);
        Self { limiter, from, to: 1 - from, slot, keys, cluster }
    }

    fn servers(&self) -> Vec<&Server> {
        self.cluster.nodes().iter().collect()
    }

    /// The words in which a node refuses the last of some commands.
    fn refusal(&self, node: usize, commands: &[&[&str]]) -> String {
        refusal(self.cluster.node(node).addr(), commands)
    }

    /// A key of the slot, stored under the given number.
    fn stored(&self, key: usize) -> String {
        self.cluster.stored(&self.keys[key]).1.remove(0)
    }

    async fn meet(
        &self,
        situation: &'static str,
        words: &str,
        then: Then,
        call: impl Future<Output = Result<Vec<Decision>, Error>> + Send + 'static,
    ) -> Row {
        let outcome = Meeting::begin(self.servers(), call).judge(situation, then, words, || {}).await;
        assert!(outcome.iter().flatten().all(|decision| decision.allowed), "{situation}: {outcome:?}");
        row(situation, words, then)
    }

    /// A check of some keys of the slot.
    fn check(
        &self,
        keys: std::ops::Range<usize>,
    ) -> impl Future<Output = Result<Vec<Decision>, Error>> + Send + 'static {
        let (limiter, keys) = (self.limiter.clone(), self.keys[keys].to_vec());
        async move { limiter.check_many(keys.iter().map(|key| (key, 1))).await }
    }

    /// Every check so far was charged once.
    async fn assert_left(&self, key: usize, left: u64) {
        assert_eq!(self.limiter.peek(&self.keys[key]).await.unwrap().remaining, left, "key {key}");
    }
}

/// A check of one key by another limiter.
async fn check(limiter: Limiter, key: String) -> Result<Vec<Decision>, Error> {
    limiter.check(&key).await.map(|decision| vec![decision])
}

/// The slot is on its way from one node to the other, and so are some of its keys.
async fn half_moved(scene: &Scene) -> Vec<Row> {
    let (moved, stays) = (scene.stored(0), scene.stored(1));
    scene.cluster.begin_migration(scene.slot, scene.from, scene.to);
    scene.cluster.migrate_keys(scene.from, scene.to, &[&moved]);
    let ask = scene.refusal(scene.from, &[&["GET", &moved]]);
    let both = ["EVALSHA", "0000000000000000000000000000000000000000", "2", &moved, &stays];
    let try_again = scene.refusal(scene.from, &[&both]);
    let other_node = Then::Overcome("the other node is asked, this once");
    let key_by_key = Then::Overcome("sent again key by key");
    let rows = vec![
        scene.meet("key is on its way", &ask, other_node, scene.check(0..1)).await,
        scene.meet("one of several keys is on its way", &try_again, key_by_key, scene.check(0..2)).await,
    ];
    scene.assert_left(0, 7).await;
    scene.assert_left(1, 8).await;
    rows
}

/// A new key of several Limits cannot be made while its slot is on its way: it would be several keys.
async fn several_limits(scene: &Scene) -> Row {
    let new = |number: usize| format!("{}new{number}", scene.stored(1));
    let words = scene.refusal(scene.to, &[&["ASKING"], &["MGET", &new(0), &new(1)]]);
    // Another name, so that the keys are new ones.
    let limiter = several(&scene.cluster.url());
    scene
        .meet(
            "new key of several limits, while its slot is on its way",
            &words,
            Then::RetriedThenFinal,
            check(limiter, scene.keys[1].clone()),
        )
        .await
}

fn several(url: &str) -> Limiter {
    let client = Client::builder(url).timeout(PATIENCE).on_failure(FailurePolicy::Raise).build().unwrap();
    client.limiter("several", "10/d + sliding-window 10/d").unwrap()
}

/// The slot has another owner by now.
async fn moved(scene: &Scene) -> Vec<Row> {
    scene.cluster.finish_migration(scene.slot, scene.from, scene.to);
    let stored = scene.stored(1);
    let words = scene.refusal(scene.from, &[&["GET", &stored]]);
    let in_script = ["EVAL", "return redis.call('GET', ARGV[1])", "0", &stored];
    let in_script = scene.refusal(scene.from, &[&in_script]);
    let as_single = limiter(&scene.cluster.node(scene.from).url());
    let rows = vec![
        scene
            .meet(
                "slot of another node",
                &words,
                Then::Overcome("the other node is asked from now on"),
                scene.check(1..2),
            )
            .await,
        scene
            .meet(
                "slot of another node, addressed as a single server",
                &words,
                Then::Final,
                check(as_single, scene.keys[1].clone()),
            )
            .await,
        row("slot of another node, in a script", &in_script, Then::Unmet),
    ];
    scene.assert_left(1, 7).await;
    rows
}

/// A node of a cluster is addressed as a single server.
async fn as_single_server(scene: &Scene) -> Vec<Row> {
    let url = scene.cluster.node(scene.to).url();
    let (crossed, chosen) = (limiter(&url), limiter(&format!("{url}/2")));
    let cross_slot = scene.refusal(scene.to, &[&["MGET", "a", "b"]]);
    let select = scene.refusal(scene.to, &[&["SELECT", "2"]]);
    let many = async move { crossed.check_many((0..9).map(|number| (format!("key-{number}"), 1))).await };
    vec![
        scene.meet("keys of several slots", &cross_slot, Then::Final, many).await,
        scene.meet("database of a cluster", &select, Then::Final, check(chosen, scene.keys[0].clone())).await,
    ]
}

/// Nobody owns the slot; then the cluster serves none for that.
async fn without_owner(scene: &Scene) -> Vec<Row> {
    let stored = scene.stored(1);
    scene.cluster.del_slots(scene.slot..=scene.slot);
    let not_served = scene.refusal(scene.to, &[&["GET", &stored]]);
    let mut rows =
        vec![scene.meet("slot without an owner", &not_served, Then::FinalOnceLearnt, scene.check(1..2)).await];
    for node in scene.cluster.nodes() {
        node.command::<(), _>(&["CONFIG", "SET", "cluster-require-full-coverage", "yes"]);
    }
    // A node looks at that setting when slots change.
    scene.cluster.del_slots(scene.slot + 1..=scene.slot + 1);
    let down = until_down(scene).await;
    let another = (0..).map(|number| format!("key-{number}")).find(|key| !scene.keys.contains(key)).unwrap();
    let call = check(scene.limiter.clone(), another);
    rows.push(scene.meet("cluster that is down", &down, Then::RetriedThenFinal, call).await);
    rows
}

/// The words of a cluster that is down, once all nodes say them.
async fn until_down(scene: &Scene) -> String {
    let is_down = |node: &Server| node.command::<String, _>(&["CLUSTER", "INFO"]).contains("cluster_state:fail");
    grifo_tests::case::eventually("a cluster that is down", PATIENCE, async || {
        scene.servers().into_iter().all(is_down)
    })
    .await;
    scene.refusal(scene.to, &[&["GET", "any"]])
}

pub(crate) async fn rows(kind: ServerKind) -> Vec<Row> {
    let _turn = TURN.lock().await;
    let scene = Scene::start(kind).await;
    let mut rows = half_moved(&scene).await;
    rows.push(several_limits(&scene).await);
    rows.extend(moved(&scene).await);
    rows.extend(as_single_server(&scene).await);
    rows.extend(without_owner(&scene).await);
    rows
}
