//! What one would write first: the generic cell rate algorithm in a script, one EVALSHA for each decision.

use std::sync::Arc;
use std::time::Duration;

use grifo_tests::Cluster;
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;
use redis::{AsyncConnectionConfig, cmd};

use super::text;
use crate::load::Subject;
use crate::place::Place;
use crate::rule::Rule;

/// As long as grifo has.
const PATIENCE: Duration = Duration::from_secs(5);

/// Stored is the time at which the bucket is full again. Answers whether it passes, how many are left, and the waits.
const SOURCE: &str = r"
local per_token, to_full, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local full_at = math.max(now, tonumber(redis.call('GET', KEYS[1])) or now)
local wanted = full_at + per_token * cost
local wait = wanted - to_full - now
if wait > 0 then
  return { 0, math.floor((to_full - full_at + now) / per_token), wait, full_at - now }
end
redis.call('SET', KEYS[1], string.format('%.0f', wanted), 'PX', math.ceil((wanted - now) / 1000))
return { 1, math.floor((to_full - wanted + now) / per_token), 0, wanted - now }
";

#[derive(Clone)]
pub(super) struct RedisCrate<C> {
    connection: C,
    sha1: Arc<str>,
    per_token: Arc<str>,
    to_full: Arc<str>,
}

pub(super) async fn connect(url: String, rule: Rule) -> Result<RedisCrate<MultiplexedConnection>, String> {
    let config = AsyncConnectionConfig::new().set_response_timeout(Some(PATIENCE));
    let client = redis::Client::open(url).map_err(text)?;
    let connection = client.get_multiplexed_async_connection_with_config(&config).await.map_err(text)?;
    RedisCrate::over(connection, rule).await
}

/// Over the cluster connection of the crate.
pub(super) async fn connect_cluster(cluster: &Cluster, rule: Rule) -> Result<RedisCrate<ClusterConnection>, String> {
    let urls = cluster.nodes().iter().map(|node| node.url());
    let client = ClusterClient::builder(urls).response_timeout(PATIENCE).build().map_err(text)?;
    RedisCrate::over(client.get_async_connection().await.map_err(text)?, rule).await
}

impl<C: ConnectionLike> RedisCrate<C> {
    async fn over(mut connection: C, rule: Rule) -> Result<Self, String> {
        let load = cmd("SCRIPT").arg("LOAD").arg(SOURCE).query_async::<String>(&mut connection).await;
        let (per_token, to_full) = (rule.per_token().to_string().into(), rule.to_full().to_string().into());
        Ok(Self { connection, sha1: load.map_err(text)?.into(), per_token, to_full })
    }

    async fn decide(&mut self, key: &str) -> Result<bool, String> {
        let mut call = cmd("EVALSHA");
        call.arg(&*self.sha1).arg(1).arg(key).arg(&*self.per_token).arg(&*self.to_full).arg(1);
        let answer = call.query_async::<(u8, i64, i64, i64)>(&mut self.connection).await;
        answer.map(|(allowed, ..)| allowed == 1).map_err(text)
    }
}

impl<C: ConnectionLike + Clone + Send + Sync + 'static> Subject for RedisCrate<C> {
    type Key = String;

    fn key(&self, name: &str) -> String {
        format!("peer:{name}")
    }

    async fn check(&mut self, key: &String) -> Result<bool, String> {
        self.decide(key).await
    }
}

/// One connection to each master of a cluster, and keys that name a slot which it serves.
#[derive(Clone)]
pub(super) struct ByMaster(Vec<(Arc<str>, RedisCrate<MultiplexedConnection>)>);

impl ByMaster {
    pub(super) async fn connect(place: &Place, rule: Rule) -> Result<Self, String> {
        let Place::Cluster(cluster) = place else { return Err("there is no cluster".to_owned()) };
        let mut masters = Vec::new();
        for master in cluster.masters() {
            masters.push((tag_of(cluster, master).into(), connect(cluster.node(master).url(), rule).await?));
        }
        Ok(Self(masters))
    }
}

/// A hash tag whose slot a master serves.
fn tag_of(cluster: &Cluster, master: usize) -> String {
    let serves = |tag: &String| cluster.master_of_slot(cluster.slot_of_key(tag)) == Some(master);
    (0..).map(|number: u32| number.to_string()).find(serves).unwrap_or_default()
}

impl Subject for ByMaster {
    type Key = (usize, String);

    fn key(&self, name: &str) -> Self::Key {
        let master = name.bytes().map(usize::from).sum::<usize>() % self.0.len();
        (master, format!("peer:{{{}}}{name}", self.0[master].0))
    }

    async fn check(&mut self, (master, key): &Self::Key) -> Result<bool, String> {
        self.0[*master].1.decide(key).await
    }
}
