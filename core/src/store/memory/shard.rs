//! A part of the keys, under one lock.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use hashbrown::HashTable;

use crate::algorithm::{self, Reading, State};
use crate::key::{KeyName, Name};
use crate::limit::{Limit, MAX_LIMITS};
use crate::store::{Answer, Operation, Told};

/// A list of expiries up to twice this long is left alone.
pub(super) const EXPIRIES_KEPT: usize = 64;
/// How many keys are looked at to find one that may go.
const SAMPLES: usize = 16;
/// At least one place in five is taken, however often keys came and went; so many draws find enough.
const DRAWS: usize = 8 * SAMPLES;

/// State under one stored name. One cache line.
#[derive(Debug)]
#[repr(align(64))]
struct Slot {
    name: Name,
    state: State,
}

const _: () = assert!(size_of::<Slot>() == 64);

/// One key of a call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Call<'a> {
    pub(super) key: KeyName,
    pub(super) limits: &'a [Limit],
    /// Tokens to take or to give back.
    pub(super) amount: u64,
    pub(super) now: u64,
}

impl Call<'_> {
    fn name(&self, limit: &Limit) -> Name {
        self.key.of_limit(limit)
    }
}

/// What is said of a key that is sound, before it is judged.
fn sound(now: u64) -> Told {
    Told { answer: Answer { allowed: true, ..Answer::default() }, healed: 0, now: Some(now) }
}

#[derive(Debug)]
pub(super) struct Shard {
    slots: HashTable<Slot>,
    max_keys: usize,
    /// When each key was to be as new when it came in, and its hash; a key that was used since is as new later.
    expiries: BinaryHeap<Reverse<(u64, u64)>>,
    /// Counted here, since one counter for all would be what threads wait for.
    decisions: u64,
}

impl Shard {
    pub(super) const fn new(max_keys: usize) -> Self {
        Self { slots: HashTable::new(), max_keys, expiries: BinaryHeap::new(), decisions: 0 }
    }

    pub(super) const fn decisions(&self) -> u64 {
        self.decisions
    }

    pub(super) const fn count(&mut self, decisions: u64) {
        self.decisions += decisions;
    }

    #[inline(always)]
    pub(super) fn decide(&mut self, operation: Operation, call: &Call<'_>) -> Told {
        match (operation, call.limits) {
            (Operation::Check, [limit]) => self.check_one(call, limit),
            _ => self.decide_rest(operation, call),
        }
    }

    #[inline(never)]
    fn decide_rest(&mut self, operation: Operation, call: &Call<'_>) -> Told {
        match operation {
            Operation::Check => self.check_all(call),
            Operation::Refund if call.amount > 0 => self.refund(call),
            Operation::Peek | Operation::Refund => self.peek(call),
            Operation::Reset => {
                call.limits.iter().for_each(|limit| self.forget(call.name(limit)));
                self.peek(call)
            }
        }
    }

    /// Like [`check_all`](Self::check_all), for most calls, which have one Limit and a key that is known.
    #[inline(always)]
    fn check_one(&mut self, call: &Call<'_>, limit: &Limit) -> Told {
        let name = call.name(limit);
        let Some(slot) = self.slots.find_mut(name.hash(), |slot| slot.name == name) else {
            return self.decide_rest(Operation::Check, call);
        };
        let judgement = algorithm::judge(&slot.state, limit, call.now, call.amount);
        if judgement.ahead {
            algorithm::heal(&mut slot.state, limit, call.now);
        }
        let reading = if judgement.passes && call.amount > 0 {
            algorithm::take(&mut slot.state, judgement.reading, limit, call.now, call.amount)
        } else {
            judgement.reading
        };
        let answer = Answer { allowed: judgement.passes, readings: [reading, [0; 3], [0; 3], [0; 3]] };
        Told { answer, healed: judgement.ahead.into(), now: Some(call.now) }
    }

    fn check_all(&mut self, call: &Call<'_>) -> Told {
        let mut decided = sound(call.now);
        let mut places = [None; MAX_LIMITS];
        for (index, limit) in call.limits.iter().enumerate() {
            places[index] = self.find(call.name(limit));
            let judgement = algorithm::judge(self.state(places[index]), limit, call.now, call.amount);
            decided.answer.allowed &= judgement.passes;
            decided.answer.readings[index] = judgement.reading;
            if judgement.ahead {
                self.heal(places[index], limit, call.now);
                decided.healed += 1;
            }
        }
        if decided.answer.allowed && call.amount > 0 {
            self.take(call, &places, &mut decided.answer.readings);
        }
        decided
    }

    /// Charges every Limit; the readings then tell what is left.
    fn take(&mut self, call: &Call<'_>, places: &[Option<usize>; MAX_LIMITS], readings: &mut [Reading; MAX_LIMITS]) {
        let Call { now, amount, .. } = *call;
        // Those that are there come first: others that come in may move them.
        for (index, limit) in call.limits.iter().enumerate() {
            if let Some(slot) = places[index].and_then(|place| self.slots.get_bucket_mut(place)) {
                readings[index] = algorithm::take(&mut slot.state, readings[index], limit, now, amount);
            }
        }
        for (index, limit) in call.limits.iter().enumerate().filter(|(index, _)| places[*index].is_none()) {
            let mut state = State::None;
            readings[index] = algorithm::take(&mut state, readings[index], limit, now, amount);
            self.insert(call, limit, state);
        }
    }

    fn peek(&self, call: &Call<'_>) -> Told {
        let mut decided = sound(call.now);
        for (index, limit) in call.limits.iter().enumerate() {
            let judgement = algorithm::judge(self.state(self.find(call.name(limit))), limit, call.now, 1);
            decided.answer.allowed &= judgement.passes;
            decided.answer.readings[index] = judgement.reading;
        }
        decided
    }

    fn refund(&mut self, call: &Call<'_>) -> Told {
        let mut healed = 0;
        for limit in call.limits {
            let place = self.find(call.name(limit));
            if algorithm::judge(self.state(place), limit, call.now, 0).ahead {
                self.heal(place, limit, call.now);
                healed += 1;
            }
            self.give(place, limit, call);
        }
        Told { healed, ..self.peek(call) }
    }

    fn give(&mut self, place: Option<usize>, limit: &Limit, call: &Call<'_>) {
        let Some(slot) = place.and_then(|place| self.slots.get_bucket_mut(place)) else { return };
        // Nothing counts any more, so there is nothing to give back.
        if algorithm::is_new(algorithm::judge(&slot.state, limit, call.now, 0).reading, limit) {
            return;
        }
        algorithm::give(&mut slot.state, limit, call.now, call.amount);
        if matches!(slot.state, State::None) {
            self.forget(call.name(limit));
        }
    }

    #[cold]
    fn heal(&mut self, place: Option<usize>, limit: &Limit, now: u64) {
        if let Some(slot) = place.and_then(|place| self.slots.get_bucket_mut(place)) {
            algorithm::heal(&mut slot.state, limit, now);
        }
    }

    fn find(&self, name: Name) -> Option<usize> {
        self.slots.find_bucket_index(name.hash(), |slot| slot.name == name)
    }

    fn state(&self, place: Option<usize>) -> &State {
        place.and_then(|place| self.slots.get_bucket(place)).map_or(&State::None, |slot| &slot.state)
    }

    fn forget(&mut self, name: Name) {
        if let Ok(slot) = self.slots.find_entry(name.hash(), |slot| slot.name == name) {
            slot.remove();
        }
    }

    fn insert(&mut self, call: &Call<'_>, limit: &Limit, state: State) {
        self.make_room(call);
        let name = call.name(limit);
        self.expiries.push(Reverse((state.as_new_at(), name.hash())));
        self.slots.insert_unique(name.hash(), Slot { name, state }, |slot| slot.name.hash());
        self.bound_expiries();
    }

    /// Lets a key go when there are too many; none of those that are being charged.
    fn make_room(&mut self, call: &Call<'_>) {
        if self.slots.len() < self.max_keys || self.remove_expired(call.now) {
            return;
        }
        let may_go = |place: &usize| {
            let slot = self.slots.get_bucket(*place);
            slot.is_some_and(|slot| call.limits.iter().all(|limit| call.name(limit) != slot.name))
        };
        let order = |place: &usize| {
            let state = self.state(Some(*place));
            (state.used(call.now), state.as_new_at())
        };
        let places = self.slots.num_buckets();
        let candidates = (0..DRAWS).map(|_| fastrand::usize(..places)).filter(may_go).take(SAMPLES);
        let least_used = candidates.min_by(|one, other| {
            let ((one_used, one_new), (other_used, other_new)) = (order(one), order(other));
            one_used.total_cmp(&other_used).then(one_new.cmp(&other_new))
        });
        if let Some(Ok(slot)) =
            least_used.or_else(|| (0..places).find(may_go)).map(|place| self.slots.get_bucket_entry(place))
        {
            slot.remove();
        }
    }

    /// Drops what is said of keys that are gone, once that is most of the list.
    fn bound_expiries(&mut self) {
        if self.expiries.len() > 2 * self.slots.len().max(EXPIRIES_KEPT) {
            let expiry = |slot: &Slot| Reverse((slot.state.as_new_at(), slot.name.hash()));
            self.expiries = self.slots.iter().map(expiry).collect();
        }
    }

    /// Removes a key that is as new. Whether there was one.
    fn remove_expired(&mut self, now: u64) -> bool {
        // However many turn up that were used since: each of them was paid for by that use.
        while let Some(Reverse((expiry, _))) = self.expiries.peek()
            && *expiry <= now
        {
            let Some(Reverse((_, hash))) = self.expiries.pop() else { break };
            let Ok(slot) = self.slots.find_entry(hash, |slot| slot.name.hash() == hash) else { continue };
            match slot.get().state.as_new_at() {
                as_new_at if as_new_at <= now => {
                    slot.remove();
                    return true;
                }
                as_new_at => self.expiries.push(Reverse((as_new_at, hash))),
            }
        }
        false
    }
}

#[cfg(test)]
impl Shard {
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn expiries(&self) -> usize {
        self.expiries.len()
    }
}
