//! Who decided about the keys of each master.

use std::collections::BTreeMap;
use std::time::Duration;

use grifo::{Decision, Source};
use serde::{Deserialize, Serialize};

/// What a degraded decision without a reason would be counted under.
pub(crate) const UNNAMED: &str = "no reason";

/// The decisions of one process, or of all.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Served {
    /// In the order of the masters.
    pub(crate) shards: Vec<Shard>,
    pub(crate) slowest: Duration,
}

/// Decisions about the keys of one master.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Shard {
    pub(crate) store: u64,
    /// Degraded decisions, by their reason.
    pub(crate) open: BTreeMap<String, u64>,
    /// How many decisions of the store there were since the last degraded one.
    pub(crate) in_a_row: u64,
}

impl Served {
    pub(crate) fn new(shards: usize) -> Self {
        Self { shards: vec![Shard::default(); shards], slowest: Duration::ZERO }
    }

    pub(crate) fn note(&mut self, shard: usize, decision: &Decision, took: Duration) -> Result<(), String> {
        self.slowest = self.slowest.max(took);
        let shard = self.shards.get_mut(shard).ok_or("there is no such master")?;
        match decision.source {
            Source::Store => {
                shard.store += 1;
                shard.in_a_row += 1;
            }
            Source::Open => {
                let reason = decision.reason.map_or_else(|| UNNAMED.to_owned(), |reason| reason.to_string());
                *shard.open.entry(reason).or_default() += 1;
                shard.in_a_row = 0;
            }
            other => return Err(format!("a decision came from `{}`", other.name())),
        }
        Ok(())
    }

    /// What several processes say together.
    pub(crate) fn together(all: &[Self]) -> Self {
        let mut sum = Self::new(all.iter().map(|one| one.shards.len()).max().unwrap_or_default());
        for one in all {
            sum.slowest = sum.slowest.max(one.slowest);
            for (sum, shard) in sum.shards.iter_mut().zip(&one.shards) {
                sum.store += shard.store;
                shard.open.iter().for_each(|(reason, count)| *sum.open.entry(reason.clone()).or_default() += count);
            }
        }
        sum
    }

    pub(crate) fn store(&self) -> u64 {
        self.shards.iter().map(|shard| shard.store).sum()
    }

    pub(crate) fn open(&self) -> u64 {
        self.shards.iter().map(Shard::open).sum()
    }

    pub(crate) fn all(&self) -> u64 {
        self.store() + self.open()
    }
}

impl Shard {
    pub(crate) fn open(&self) -> u64 {
        self.open.values().sum()
    }

    /// The reasons, the most frequent one first.
    pub(crate) fn reasons(&self) -> Vec<(&str, u64)> {
        let mut reasons: Vec<_> = self.open.iter().map(|(reason, count)| (reason.as_str(), *count)).collect();
        reasons.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        reasons
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shard(store: u64, open: &[(&str, u64)]) -> Shard {
        let open = open.iter().map(|(reason, count)| ((*reason).to_owned(), *count)).collect();
        Shard { store, open, in_a_row: 0 }
    }

    #[test]
    fn processes_are_added_up() {
        let one =
            Served { shards: vec![shard(1, &[("Timeout", 2)]), shard(3, &[])], slowest: Duration::from_millis(4) };
        let other =
            Served { shards: vec![shard(5, &[("Connection", 6)]), shard(7, &[])], slowest: Duration::from_millis(1) };
        let sum = Served::together(&[one, other]);
        assert_eq!((sum.store(), sum.open(), sum.all(), sum.slowest), (16, 8, 24, Duration::from_millis(4)));
        assert_eq!(sum.shards[0].reasons(), [("Connection", 6), ("Timeout", 2)]);
    }
}
