//! What came of the requests under one limiter.

use std::cmp::Reverse;

use super::log::{Log, Record};
use super::timeline::Timeline;

/// How many of the most denied keys are named.
const NAMED: usize = 10;

#[derive(Debug, Clone)]
pub(super) struct Tally {
    /// Allowed in each step of the timeline.
    pub(super) allowed: Vec<u64>,
    /// Denied in each step of the timeline.
    pub(super) denied: Vec<u64>,
    denied_by_key: Vec<u64>,
}

impl Tally {
    pub(super) fn new(timeline: &Timeline, keys: usize) -> Self {
        Self { allowed: vec![0; timeline.steps], denied: vec![0; timeline.steps], denied_by_key: vec![0; keys] }
    }

    pub(super) fn add(&mut self, record: Record, timeline: &Timeline, allowed: bool) {
        let step = timeline.index(record.seconds);
        if allowed {
            self.allowed[step] += 1;
        } else {
            self.denied[step] += 1;
            self.denied_by_key[record.key] += 1;
        }
    }

    pub(super) fn total_allowed(&self) -> u64 {
        self.allowed.iter().sum()
    }

    pub(super) fn total_denied(&self) -> u64 {
        self.denied.iter().sum()
    }

    pub(super) fn keys_ever_denied(&self) -> u64 {
        self.denied_by_key.iter().filter(|denied| **denied > 0).count() as u64
    }

    /// The keys that were denied most often, those of equal count in order of their bytes.
    pub(super) fn most_denied<'a>(&self, log: &'a Log) -> Vec<MostDenied<'a>> {
        let denied = self.denied_by_key.iter().zip(&log.keys).zip(&log.requests_by_key);
        let mut all: Vec<MostDenied<'_>> = denied
            .filter(|((denied, _), _)| **denied > 0)
            .map(|((denied, key), requests)| MostDenied { key, denied: *denied, requests: *requests })
            .collect();
        all.sort_by_key(|one| (Reverse(one.denied), one.key));
        all.truncate(NAMED);
        all
    }
}

#[derive(Debug)]
pub(super) struct MostDenied<'a> {
    pub(super) key: &'a [u8],
    pub(super) denied: u64,
    pub(super) requests: u64,
}
