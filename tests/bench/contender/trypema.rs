//! trypema: a sliding window of a minute, with its own defaults, and a rate that lets everything pass.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use trypema::hybrid::HybridRateLimiterProvider;
use trypema::local::LocalRateLimiterProvider;
use trypema::redis::{RedisKey, RedisRateLimiterProvider};
use trypema::{RateLimit, RateLimitDecision, RateLimiterBuilder};

use super::text;
use crate::load::Subject;
use crate::place::Place;

/// As long as grifo has.
const PATIENCE: Duration = Duration::from_secs(5);
const PER_SECOND: f64 = 1e9;

async fn manager(place: &Place) -> Result<ConnectionManager, String> {
    let config = ConnectionManagerConfig::new().set_response_timeout(Some(PATIENCE));
    let client = redis::Client::open(place.url()).map_err(text)?;
    client.get_connection_manager_with_config(config).await.map_err(text)
}

fn rate() -> Result<RateLimit, String> {
    RateLimit::per_second(PER_SECOND).map_err(text)
}

fn redis_key(name: &str) -> RedisKey {
    RedisKey::try_from(name.replace(':', "-")).unwrap_or_else(|error| panic!("{name} is no key: {error}"))
}

const fn is_allowed(decision: &RateLimitDecision) -> bool {
    matches!(decision, RateLimitDecision::Allowed)
}

/// Every decision is the server's.
#[derive(Clone)]
pub(super) struct Redis(Arc<RedisRateLimiterProvider>, RateLimit);

impl Redis {
    pub(super) async fn connect(place: &Place) -> Result<Self, String> {
        let provider = RedisRateLimiterProvider::builder(manager(place).await?).build().map_err(text)?;
        Ok(Self(provider, rate()?))
    }
}

impl Subject for Redis {
    type Key = RedisKey;

    fn key(&self, name: &str) -> RedisKey {
        redis_key(name)
    }

    async fn check(&mut self, key: &RedisKey) -> Result<bool, String> {
        self.0.absolute().inc(key, &self.1, 1).await.map(|decision| is_allowed(&decision)).map_err(text)
    }
}

/// Decides here and tells the server later, so that several processes may admit too many together.
#[derive(Clone)]
pub(super) struct Hybrid(Arc<HybridRateLimiterProvider>, RateLimit);

impl Hybrid {
    pub(super) async fn connect(place: &Place) -> Result<Self, String> {
        let provider = HybridRateLimiterProvider::builder(manager(place).await?).build().map_err(text)?;
        Ok(Self(provider, rate()?))
    }
}

impl Subject for Hybrid {
    type Key = RedisKey;
    const IS_LOCAL: bool = true;

    fn key(&self, name: &str) -> RedisKey {
        redis_key(name)
    }

    async fn check(&mut self, key: &RedisKey) -> Result<bool, String> {
        self.0.absolute().inc(key, &self.1, 1).await.map(|decision| is_allowed(&decision)).map_err(text)
    }
}

/// In this process alone.
#[derive(Clone)]
pub(super) struct Local(Arc<LocalRateLimiterProvider>, RateLimit);

impl Local {
    pub(super) fn new() -> Result<Self, String> {
        Ok(Self(LocalRateLimiterProvider::builder().build().map_err(text)?, rate()?))
    }
}

impl Subject for Local {
    type Key = String;
    const IS_LOCAL: bool = true;

    fn key(&self, name: &str) -> String {
        name.to_owned()
    }

    async fn check(&mut self, key: &String) -> Result<bool, String> {
        Ok(is_allowed(&self.0.absolute().inc(key, &self.1, 1)))
    }
}
