//! What must hold when one master of several was killed, and the words for it.

use std::time::Duration;

use crate::DEADLINE;
use crate::screen::{Screen, Style, grouped};
use crate::served::{Served, Shard, UNNAMED};

/// What a busy machine may add to a deadline.
const SLACK: Duration = Duration::from_secs(1);

pub(crate) fn check(served: &Served, victim: usize) -> Result<(), String> {
    for (index, shard) in served.shards.iter().enumerate() {
        if index == victim && shard.open() == 0 {
            return Err("no decision was degraded, though the master of some keys was killed".to_owned());
        }
        if index != victim && shard.open() > 0 {
            let (count, reasons) = (shard.open(), reasons(shard));
            return Err(format!("{count} decisions were degraded whose master was alive: {reasons}"));
        }
        if shard.open.contains_key(UNNAMED) {
            return Err("decisions were degraded without a reason".to_owned());
        }
    }
    if served.slowest > DEADLINE + SLACK {
        return Err(format!("a decision took {:?}, with a deadline of {DEADLINE:?}", served.slowest));
    }
    Ok(())
}

/// In the words and numbers of the last frame.
pub(crate) fn report(served: &Served, victim: usize, own: usize, after: &str, screen: &mut Screen) {
    let shard = &served.shards[victim];
    let rows = [
        format!("store    {:>8} decisions", grouped(served.store())),
        format!("open     {:>8} decisions, all about the {own} keys of that master", grouped(shard.open())),
        format!("reason     {}", reasons(shard)),
        format!("slowest    {}, with a deadline of {}", millis(served.slowest), millis(DEADLINE)),
        format!("again      {after}"),
    ];
    screen.say(Style::Plain, &format!("\nChecked, from before the kill to the end:\n  {}", rows.join("\n  ")));
    screen.say(Style::Good, "RECOVERED: only that master's keys were degraded, and all is store again.");
}

pub(crate) fn millis(time: Duration) -> String {
    format!("{} ms", time.as_micros().div_ceil(1000))
}

fn reasons(shard: &Shard) -> String {
    let reasons = shard.reasons().into_iter().map(|(reason, count)| format!("{} {reason}", grouped(count)));
    reasons.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(open: [u64; 2], reason: &str, slowest: u64) -> Served {
        let shard = |count: u64| Shard {
            store: 10,
            open: (count > 0).then(|| (reason.to_owned(), count)).into_iter().collect(),
            in_a_row: 1,
        };
        Served { shards: open.map(shard).into(), slowest: Duration::from_millis(slowest) }
    }

    #[test]
    fn only_the_keys_of_the_dead_master_may_be_degraded() {
        assert_eq!(check(&served([5, 0], "Connection", 9), 0), Ok(()));
        assert!(check(&served([5, 1], "Timeout", 9), 0).unwrap_err().contains("1 Timeout"));
        assert!(check(&served([0, 0], "Connection", 9), 0).is_err());
    }

    #[test]
    fn a_reason_and_a_deadline_are_asked_for() {
        assert!(check(&served([5, 0], UNNAMED, 9), 0).unwrap_err().contains("without a reason"));
        assert!(check(&served([5, 0], "Connection", 1600), 0).unwrap_err().contains("1.6s"));
    }
}
