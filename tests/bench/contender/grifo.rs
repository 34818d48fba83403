//! grifo, on every place.

use std::time::Duration;

use grifo::{Client, FailurePolicy, Limiter};

use super::text;
use crate::load::Subject;
use crate::place::Place;
use crate::rule::Rule;

/// No decision may be the policy's: it would be an error.
const PATIENCE: Duration = Duration::from_secs(5);
/// More than any run asks about.
const MAX_KEYS: usize = 200_000;

/// Whether the client may remember what was denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Denials {
    Asked,
    Remembered,
}

#[derive(Clone)]
pub(super) struct Grifo(Limiter);

impl Grifo {
    pub(super) async fn connect(place: &Place, rule: Rule, denials: Denials) -> Result<Self, String> {
        let client = client(&place.url(), denials).map_err(text)?;
        client.connect(PATIENCE).await.map_err(text)?;
        Ok(Self(client.limiter("bench", rule.text()).map_err(text)?))
    }
}

pub(super) fn client(url: &str, denials: Denials) -> Result<Client, grifo::Error> {
    let builder = Client::builder(url).timeout(PATIENCE).on_failure(FailurePolicy::Raise).max_keys(MAX_KEYS);
    match denials {
        Denials::Asked => builder.deny_cache_max(Duration::ZERO).build(),
        Denials::Remembered => builder.build(),
    }
}

impl Subject for Grifo {
    type Key = String;

    fn key(&self, name: &str) -> String {
        name.to_owned()
    }

    async fn check(&mut self, key: &String) -> Result<bool, String> {
        self.0.check(key).await.map(|decision| decision.allowed).map_err(text)
    }
}
