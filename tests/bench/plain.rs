//! What one would write first: a token bucket in a hash, in floating point, one EVALSHA for each decision.

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;
use redis::{RedisResult, cmd};

const SOURCE: &str = r"
local rate, burst, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1000000
local state = redis.call('HMGET', KEYS[1], 'tokens', 'time')
local tokens = tonumber(state[1]) or burst
local last = tonumber(state[2]) or now
tokens = math.min(burst, tokens + (now - last) * rate)
local allowed = 0
if tokens >= cost then
  tokens = tokens - cost
  allowed = 1
end
redis.call('HSET', KEYS[1], 'tokens', tostring(tokens), 'time', string.format('%.6f', now))
redis.call('PEXPIRE', KEYS[1], math.ceil(burst / rate * 1000) + 1000)
return { allowed, math.floor(tokens) }
";

#[derive(Clone)]
pub(crate) struct Plain<C> {
    connection: C,
    sha1: std::sync::Arc<str>,
}

impl Plain<MultiplexedConnection> {
    pub(crate) async fn connect(url: &str) -> RedisResult<Self> {
        Self::over(redis::Client::open(url)?.get_multiplexed_async_connection().await?).await
    }
}

impl Plain<ClusterConnection> {
    /// Over the cluster connection of the `redis` crate, to the nodes at these URLs.
    pub(crate) async fn connect_cluster(urls: Vec<String>) -> RedisResult<Self> {
        Self::over(ClusterClient::new(urls)?.get_async_connection().await?).await
    }
}

/// One connection to each master of a cluster, for keys of one slot of each.
#[derive(Clone)]
pub(crate) struct PlainNodes(Vec<(String, Plain<MultiplexedConnection>)>);

impl PlainNodes {
    /// Connects to masters, given by their URLs, each with a hash tag of a slot that it serves.
    pub(crate) async fn connect(masters: Vec<(String, String)>) -> RedisResult<Self> {
        let mut nodes = Vec::new();
        for (url, tag) in masters {
            nodes.push((tag, Plain::connect(&url).await?));
        }
        Ok(Self(nodes))
    }

    pub(crate) async fn check(&mut self, key: &str) -> RedisResult<bool> {
        let sum: usize = key.bytes().map(usize::from).sum();
        let place = sum % self.0.len();
        let (tag, node) = &mut self.0[place];
        node.check(&format!("{{{tag}}}{key}")).await
    }
}

impl<C: ConnectionLike> Plain<C> {
    async fn over(mut connection: C) -> RedisResult<Self> {
        let sha1: String = cmd("SCRIPT").arg("LOAD").arg(SOURCE).query_async(&mut connection).await?;
        Ok(Self { connection, sha1: sha1.into() })
    }

    pub(crate) async fn check(&mut self, key: &str) -> RedisResult<bool> {
        let mut call = cmd("EVALSHA");
        call.arg(&*self.sha1).arg(1).arg(format!("plain:{key}")).arg(100).arg(50).arg(1);
        let (allowed, _): (u64, u64) = call.query_async(&mut self.connection).await?;
        Ok(allowed == 1)
    }
}
