use std::time::Duration;

use super::*;

/// Callers of one store, who do not give up.
pub(in crate::store::redis) struct Callers(Keyspace);

impl Callers {
    pub(in crate::store::redis) fn new() -> Self {
        Self(Keyspace::new("grifo".to_owned()))
    }

    /// A check of a key.
    pub(in crate::store::redis) fn demand<'a>(
        &'a self,
        limits: &'a Arc<Limits>,
        key: &'a str,
        amount: u64,
    ) -> Demand<'a> {
        let asked = std::time::Instant::now();
        let deadline = Instant::from_std(asked) + Duration::from_secs(3600);
        let terms = Terms { operation: Operation::Check, now: None, asked, deadline };
        let entry = Entry { limiter: "api", limits, key: key.as_bytes(), amount };
        Demand::new(&self.0, Partitions::default(), false, terms, &entry)
    }

    fn push(
        &self,
        batches: &mut Batches<u32>,
        (limits, key, amount): (&Arc<Limits>, &str, u64),
        reply: u32,
    ) -> Result<(), u32> {
        let demand = self.demand(limits, key, amount);
        batches.push(&demand, demand.keys(), reply)
    }
}

fn limits(text: &str) -> Arc<Limits> {
    Arc::new(text.parse().unwrap())
}

fn take(batches: &mut Batches<u32>) -> Vec<Batch<u32>> {
    batches.take(|_| false).into_iter().filter_map(Batch::of).collect()
}

fn replies(batch: &Batch<u32>) -> Vec<u32> {
    batch.waiting.iter().map(|waiter| waiter.reply).collect()
}

#[test]
fn callers_of_one_key_share_an_entry_in_order_of_arrival() {
    let (callers, mut batches) = (Callers::new(), Batches::default());
    let limits = limits("10/s");
    for (reply, (key, amount)) in [("a", 1), ("b", 1), ("a", 1), ("a", 3), ("b", 1)].into_iter().enumerate() {
        callers.push(&mut batches, (&limits, key, amount), reply as u32).unwrap();
    }
    let taken = take(&mut batches);
    assert_eq!((taken.len(), taken[0].call.entries()), (1, 2));
    assert_eq!(replies(&taken[0]), [0, 2, 3, 1, 4]);
    assert!(batches.is_empty());
}

#[test]
fn other_limits_come_in_between() {
    let (callers, mut batches) = (Callers::new(), Batches::default());
    let (old, new) = (limits("10/s"), limits("20/s"));
    for (reply, limits) in [&old, &new, &old, &old].into_iter().enumerate() {
        callers.push(&mut batches, (limits, "a", 1), reply as u32).unwrap();
    }
    let taken = take(&mut batches);
    assert_eq!((taken[0].call.entries(), replies(&taken[0])), (3, vec![0, 1, 2, 3]));
}

#[test]
fn a_call_is_no_heavier_than_the_server_can_bear() {
    for (text, keys_per_call) in [("10/s", 48), ("fixed-window 10/s", 16), ("10/s + 100/min", 8)] {
        let (callers, mut batches) = (Callers::new(), Batches::default());
        let limits = limits(text);
        for number in 0..100 {
            callers.push(&mut batches, (&limits, &number.to_string(), 1), number).unwrap();
        }
        let mut seen = Vec::new();
        while let [batch] = &take(&mut batches)[..] {
            assert!(batch.call.entries() <= keys_per_call, "{text}");
            seen.extend(replies(batch));
        }
        assert_eq!(seen, (0..100).collect::<Vec<_>>(), "{text}");
    }
}

#[test]
fn many_lanes_go_out_in_one_write_and_none_is_lost() {
    let (callers, mut batches) = (Callers::new(), Batches::default());
    let limits = limits("10/s");
    for lane in 0..64 {
        let key = lane.to_string();
        let demand = Demand { lane: lane as usize, ..callers.demand(&limits, &key, 1) };
        batches.push(&demand, demand.keys(), lane).unwrap();
    }
    let mut seen = Vec::new();
    while !batches.is_empty() {
        let taken = take(&mut batches);
        assert!(taken.len() <= MOST_CALLS_PER_WRITE);
        seen.extend(taken.iter().flat_map(replies));
    }
    assert_eq!(seen, (0..64).collect::<Vec<_>>());
}

#[test]
fn who_is_gone_stays_behind_and_too_many_are_turned_away() {
    let (callers, mut batches) = (Callers::new(), Batches::default());
    let limits = limits("10/s");
    for number in 0..MOST_WAITING as u32 {
        callers.push(&mut batches, (&limits, &(number % 7).to_string(), 1), number).unwrap();
    }
    assert_eq!(callers.push(&mut batches, (&limits, "one more", 1), 0), Err(0));
    let taken = batches.take(|waiter| waiter.reply % 2 == 0);
    let waiters = taken.into_iter().filter_map(Batch::of).flat_map(|batch| batch.waiting);
    assert!(waiters.map(|waiter| waiter.reply).all(|reply| reply % 2 == 1));
    while !take(&mut batches).is_empty() {}
    assert_eq!(batches.waiting, 0);
    assert!(batches.lanes[0].last_of.is_empty());
}
