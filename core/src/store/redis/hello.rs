//! What a server says of itself. No user needs a right to ask for it.

use redis::{FromRedisValue, Value, cmd};

use super::link::Link;
use super::reply::Failure;
use crate::error::Error;

/// The answer to HELLO: names and values in turn.
pub(super) struct Hello(Vec<Value>);

impl Hello {
    pub(super) async fn ask(link: &Link) -> Result<Self, Error> {
        let answer = link.ask(&cmd("HELLO")).await.map_err(Failure::into_error)?;
        Ok(Self(FromRedisValue::from_redis_value(answer).unwrap_or_default()))
    }

    /// The value of a name: `server`, `version`, `role`.
    pub(super) fn get(&self, name: &str) -> Option<String> {
        let text = |value: &Value| String::from_redis_value(value.clone()).ok();
        let pair = self.0.chunks_exact(2).find(|pair| text(&pair[0]).as_deref() == Some(name))?;
        text(&pair[1])
    }
}
