//! governor, keyed, with the map and the clock that its users get by default.

use std::sync::Arc;

use governor::DefaultKeyedRateLimiter;

use crate::load::Subject;
use crate::rule::Rule;

#[derive(Clone)]
pub(super) struct Governor(Arc<DefaultKeyedRateLimiter<String>>);

impl Governor {
    pub(super) fn new(rule: Rule) -> Result<Self, String> {
        Ok(Self(Arc::new(DefaultKeyedRateLimiter::keyed(rule.quota()?))))
    }
}

impl Subject for Governor {
    type Key = String;
    const IS_LOCAL: bool = true;

    fn key(&self, name: &str) -> String {
        name.to_owned()
    }

    async fn check(&mut self, key: &String) -> Result<bool, String> {
        Ok(self.0.check_key(key).is_ok())
    }
}
