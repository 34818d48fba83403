//! Decisions for which nobody is waited for: no future, no deadline, no policy. Those of `memory://` allocate nothing for a known
//! key.

use std::time::Instant;

use super::{Guard, impossible};
use crate::decision::Decision;
use crate::error::Error;
use crate::key::check_key;
use crate::store::memory::MemoryStore;
use crate::store::{AnyStore, Entry, Operation};

/// What can be said of a call at once.
#[expect(clippy::large_enum_variant, reason = "it is looked at where it is made, and a box would cost more")]
pub(crate) enum AtOnce {
    Decided(Result<Decision, Error>),
    /// The store must be asked, as of this time.
    Asks(Instant),
}

impl Guard {
    /// Decides one entry, if that needs no store elsewhere.
    #[inline]
    pub(crate) fn decide_at_once(&self, operation: Operation, entry: &Entry<'_>) -> AtOnce {
        if let Err(error) = self.check_open().and_then(|()| check_key(entry.key)) {
            return AtOnce::Decided(Err(error));
        }
        if let AnyStore::Memory(store) = &self.store {
            return AtOnce::Decided(Ok(self.decide_in_memory(store, operation, entry, None)));
        }
        let asked = Instant::now();
        match self.locally(operation, entry, asked) {
            Some(decision) => {
                self.counters.add_decisions(1);
                AtOnce::Decided(Ok(decision))
            }
            None => AtOnce::Asks(asked),
        }
    }

    /// From the Limits alone where a cost can never pass, else by the store.
    #[inline]
    pub(super) fn decide_in_memory(
        &self,
        store: &MemoryStore,
        operation: Operation,
        entry: &Entry<'_>,
        now: Option<u64>,
    ) -> Decision {
        if let Some(decision) = impossible(operation, entry) {
            self.counters.add_decisions(1);
            return decision;
        }
        let decided = store.decide_now(operation, entry, now);
        if decided.healed > 0 {
            self.counters.add_healed(decided.healed);
        }
        decided.answer.decision(entry.limits, operation.judged_cost(entry.amount))
    }

    /// From the Limits alone where a cost can never pass, or from an earlier denial where it cannot pass yet.
    #[inline]
    pub(super) fn locally(&self, operation: Operation, entry: &Entry<'_>, asked: Instant) -> Option<Decision> {
        if operation != Operation::Check {
            return None;
        }
        impossible(operation, entry).or_else(|| self.deny_cache.denial(entry, asked))
    }
}
