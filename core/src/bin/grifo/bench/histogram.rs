//! Many times in little memory.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Each power of two is divided into so many steps, so no time is told more than a sixty-fourth too low.
const STEPS: u64 = 64;
const STEP_BITS: u32 = STEPS.trailing_zeros();
const SIZE: usize = (STEPS * (u64::BITS - STEP_BITS + 1) as u64) as usize;

/// Counts times. All callers share one.
#[derive(Debug)]
pub(super) struct Histogram(Vec<AtomicU64>);

impl Histogram {
    pub(super) fn new() -> Self {
        Self((0..SIZE).map(|_| AtomicU64::new(0)).collect())
    }

    pub(super) fn add(&self, time: Duration) {
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.0[step_of(nanoseconds)].fetch_add(1, Ordering::Relaxed);
    }

    /// The time that a part of all times does not exceed. Zero when there are none.
    pub(super) fn quantile(&self, part: f64) -> Duration {
        let counts: Vec<u64> = self.0.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        let wanted = (counts.iter().sum::<u64>() as f64 * part).ceil() as u64;
        let mut seen = 0;
        let step = counts.iter().position(|count| {
            seen += count;
            seen >= wanted.max(1)
        });
        Duration::from_nanos(step.map_or(0, start_of))
    }
}

fn step_of(nanoseconds: u64) -> usize {
    // Below two rounds of steps each number has its own.
    let shift = (u64::BITS - nanoseconds.leading_zeros()).saturating_sub(STEP_BITS + 1);
    (u64::from(shift) * STEPS + (nanoseconds >> shift)) as usize
}

fn start_of(step: usize) -> u64 {
    let step = step as u64;
    let shift = (step / STEPS).saturating_sub(1);
    (step - shift * STEPS) << shift
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_has_a_step_that_is_near() {
        for power in 0..64 {
            for time in [1_u64 << power, (1_u64 << power) + (1_u64 << power) / 3, u64::MAX >> (63 - power)] {
                let start = start_of(step_of(time));
                assert!(start <= time && time - start <= time / STEPS, "{time} begins at {start}");
            }
        }
        assert!(step_of(u64::MAX) < SIZE);
    }

    #[test]
    fn quantiles_are_times_that_were_seen() {
        let histogram = Histogram::new();
        assert_eq!(histogram.quantile(0.5), Duration::ZERO);
        for microseconds in 1..=100 {
            histogram.add(Duration::from_nanos(microseconds));
        }
        let at = |part| histogram.quantile(part).as_nanos();
        assert_eq!((at(0.0), at(0.5), at(0.99), at(1.0)), (1, 50, 99, 100));
    }
}
