//! Every shared vector on every store: memory and each server this machine has.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use grifo::{Client, ClientBuilder, FailurePolicy, Limits};
use grifo_tests::cluster::Cluster;
use grifo_tests::scenario::{Player, Scenario};
use grifo_tests::{Sentinels, Server, ServerKind, TlsFront, server_binary};
use serde_json::Value;
use tokio::sync::Mutex;

fn vectors() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("vectors")
}

fn read(path: &Path) -> Value {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The scenarios of every vector file that has some.
fn scenarios() -> Vec<Scenario> {
    let files = fs::read_dir(vectors()).expect("the vectors are there");
    let mut paths: Vec<PathBuf> = files.map(|file| file.expect("a file").path()).collect();
    paths.sort();
    let scenarios: Vec<Scenario> = paths
        .iter()
        .filter_map(|path| read(path).get("scenarios").cloned())
        .flat_map(|list| serde_json::from_value::<Vec<Scenario>>(list).expect("scenarios"))
        .collect();
    assert!(scenarios.len() > 50, "only {} scenarios were found", scenarios.len());
    scenarios
}

fn client(builder: ClientBuilder, prefix: usize) -> Client {
    let builder = builder.prefix(format!("v{prefix}")).timeout(Duration::from_secs(10));
    builder.on_failure(FailurePolicy::Raise).build().expect("a good URL")
}

async fn conforms(url: &str) {
    println!("on {url}");
    conforms_with(|| Client::builder(url)).await;
}

/// Plays all scenarios, each with keys of its own.
async fn conforms_with(builder: impl Fn() -> ClientBuilder) {
    let mut steps = 0;
    for (index, scenario) in scenarios().iter().enumerate() {
        let mut player = Player::new(client(builder(), index));
        for (number, step) in scenario.steps.iter().enumerate() {
            let results = player.play(step).await;
            assert_eq!(results, step.results, "{}, step {number}: {step:?}", scenario.name);
            steps += 1;
        }
    }
    println!("{steps} steps");
}

async fn conforms_on(kind: ServerKind) {
    if server_binary::find(kind).is_none() {
        println!("{} is not installed here", kind.name());
        return;
    }
    let server = Server::start(kind);
    conforms(&server.url()).await;
    let keys: Vec<Vec<u8>> = server.command(&["KEYS", "*"]);
    assert!(!keys.is_empty());
    for key in keys {
        let ttl: i64 = server.command(&[b"PTTL".as_slice(), &key]);
        assert!(ttl > 0, "{} lives for {ttl} ms", String::from_utf8_lossy(&key));
    }
}

#[tokio::test]
async fn memory_conforms() {
    conforms("memory://").await;
}

#[tokio::test]
async fn valkey_9_1_conforms() {
    conforms_on(ServerKind::Valkey91).await;
}

#[tokio::test]
async fn redis_6_2_conforms() {
    conforms_on(ServerKind::Redis62).await;
}

#[tokio::test]
async fn redis_7_0_conforms() {
    conforms_on(ServerKind::Redis70).await;
}

#[tokio::test]
async fn redis_8_2_conforms() {
    conforms_on(ServerKind::Redis82).await;
}

#[tokio::test]
async fn the_default_server_conforms_over_tls() {
    let server = Server::start_default();
    let front = TlsFront::start(server.addr());
    conforms_with(|| Client::builder(front.url()).tls_ca_file(front.ca_file())).await;
}

async fn conforms_on_a_cluster_of(kind: ServerKind) {
    if server_binary::find(kind).is_none() {
        println!("{} is not installed here", kind.name());
        return;
    }
    let cluster = Cluster::start(kind, 3, 0);
    conforms(&cluster.url()).await;
}

#[tokio::test]
async fn a_cluster_of_valkey_9_1_conforms() {
    conforms_on_a_cluster_of(ServerKind::Valkey91).await;
}

#[tokio::test]
async fn a_cluster_of_redis_6_2_conforms() {
    conforms_on_a_cluster_of(ServerKind::Redis62).await;
}

#[tokio::test]
async fn a_cluster_of_redis_7_0_conforms() {
    conforms_on_a_cluster_of(ServerKind::Redis70).await;
}

#[tokio::test]
async fn a_cluster_of_redis_8_2_conforms() {
    conforms_on_a_cluster_of(ServerKind::Redis82).await;
}

/// One deployment of six servers at a time.
static TURN: Mutex<()> = Mutex::const_new(());

async fn conforms_behind_sentinels_of(kind: ServerKind) {
    if server_binary::find(kind).is_none() {
        println!("{} is not installed here", kind.name());
        return;
    }
    let _turn = TURN.lock().await;
    let sentinels = Sentinels::start(kind);
    conforms(&sentinels.url()).await;
}

#[tokio::test]
async fn valkey_9_1_behind_sentinels_conforms() {
    conforms_behind_sentinels_of(ServerKind::Valkey91).await;
}

#[tokio::test]
async fn redis_6_2_behind_sentinels_conforms() {
    conforms_behind_sentinels_of(ServerKind::Redis62).await;
}

#[tokio::test]
async fn redis_7_0_behind_sentinels_conforms() {
    conforms_behind_sentinels_of(ServerKind::Redis70).await;
}

#[tokio::test]
async fn redis_8_2_behind_sentinels_conforms() {
    conforms_behind_sentinels_of(ServerKind::Redis82).await;
}

#[test]
fn limits_read_as_the_reference_reads_them() {
    let file = read(&vectors().join("limit_text.json"));
    let list = file.as_object().and_then(|file| file.values().find_map(Value::as_array)).expect("a list");
    assert!(list.len() > 50);
    for case in list {
        let text = case["text"].as_str().expect("a text");
        match (text.parse::<Limits>(), case.get("error")) {
            (Err(error), Some(kind)) => assert_eq!(error.kind().name(), kind, "{text:?}"),
            (Ok(limits), None) => {
                let wanted = case["limits"].as_array().expect("limits");
                assert_eq!(limits.as_slice().len(), wanted.len(), "{text:?}");
                for (limit, wanted) in limits.as_slice().iter().zip(wanted) {
                    assert_eq!(limit.algorithm().name(), wanted["algorithm"], "{text:?}");
                    assert_eq!(limit.count(), wanted["count"].as_u64().unwrap(), "{text:?}");
                    assert_eq!(
                        limit.period().as_micros(),
                        u128::from(wanted["period_us"].as_u64().unwrap()),
                        "{text:?}"
                    );
                    assert_eq!(limit.capacity(), wanted["burst"].as_u64().unwrap_or(limit.count()), "{text:?}");
                }
                assert_eq!(limits.to_string().parse::<Limits>().as_ref(), Ok(&limits), "{limits}");
            }
            (outcome, error) => panic!("{text:?}: {outcome:?}, but the reference says {error:?}"),
        }
    }
}
