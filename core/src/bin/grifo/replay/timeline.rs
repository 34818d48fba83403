//! Time in equal steps that people can read.

use jiff::Timestamp;

/// A log is drawn in at most this many steps.
const MOST_STEPS: u64 = 60;
const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
/// Lengths of a step; longer ones double the last.
const LENGTHS: [u64; 19] = [
    1,
    2,
    5,
    10,
    15,
    30,
    MINUTE,
    2 * MINUTE,
    5 * MINUTE,
    10 * MINUTE,
    15 * MINUTE,
    30 * MINUTE,
    HOUR,
    2 * HOUR,
    3 * HOUR,
    6 * HOUR,
    12 * HOUR,
    DAY,
    2 * DAY,
];

/// Steps of equal length that begin at multiples of it since the epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Timeline {
    /// Seconds since the epoch.
    pub(super) start: u64,
    /// Length of a step in seconds.
    pub(super) step: u64,
    pub(super) steps: usize,
}

impl Timeline {
    /// The finest one that covers a span in few steps; none of a span that is empty.
    pub(super) fn covering(span: Option<(u64, u64)>) -> Self {
        let Some((first, last)) = span else { return Self { start: 0, step: 1, steps: 0 } };
        let steps = |step: u64| last / step - first / step + 1;
        let step = step_that(|step| steps(step) <= MOST_STEPS);
        Self { start: first - first % step, step, steps: steps(step) as usize }
    }

    pub(super) const fn index(&self, seconds: u64) -> usize {
        ((seconds - self.start) / self.step) as usize
    }

    pub(super) const fn end(&self) -> u64 {
        self.start + self.step * self.steps as u64
    }

    /// A few times on the way, at even distances.
    pub(super) fn marks(&self, most: u64) -> Marks {
        let distance = step_that(|step| (self.end() - self.start) / step <= most);
        let first = self.start.next_multiple_of(distance);
        let times = (first..=self.end()).step_by(distance as usize).collect();
        Marks { times, distance }
    }
}

/// Times at even distances.
#[derive(Debug)]
pub(super) struct Marks {
    pub(super) times: Vec<u64>,
    distance: u64,
}

impl Marks {
    /// A time, as short as the distance to its neighbours allows.
    pub(super) fn label(&self, seconds: u64) -> String {
        let format = match self.distance {
            DAY.. => "%Y-%m-%d",
            _ if seconds.is_multiple_of(DAY) => "%b %-d",
            MINUTE.. => "%H:%M",
            _ => "%H:%M:%S",
        };
        timestamp(seconds).strftime(format).to_string()
    }
}

fn step_that(suits: impl Fn(u64) -> bool) -> u64 {
    let mut longer = LENGTHS[LENGTHS.len() - 1];
    let fixed = LENGTHS.into_iter().find(|step| suits(*step));
    fixed.unwrap_or_else(|| {
        while !suits(longer) {
            longer *= 2;
        }
        longer
    })
}

/// Times of logs lie within what a timestamp can say.
pub(super) fn timestamp(seconds: u64) -> Timestamp {
    i64::try_from(seconds).ok().and_then(|seconds| Timestamp::from_second(seconds).ok()).unwrap_or(Timestamp::MAX)
}

/// A time in words.
pub(super) fn moment(seconds: u64) -> String {
    timestamp(seconds).strftime("%Y-%m-%d %H:%M:%S").to_string()
}

/// A length of time in its largest whole unit.
pub(super) fn length(seconds: u64) -> String {
    let units = [(DAY, "d"), (HOUR, "h"), (MINUTE, "min"), (1, "s")];
    let (unit, name) = units.into_iter().find(|(unit, _)| seconds.is_multiple_of(*unit)).unwrap_or((1, "s"));
    format!("{} {name}", seconds / unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_cover_the_span() {
        assert_eq!(Timeline::covering(Some((100, 100))), Timeline { start: 100, step: 1, steps: 1 });
        assert_eq!(Timeline::covering(Some((59, 120))), Timeline { start: 58, step: 2, steps: 32 });
        for last in [1, 61, 3600, 86_400, 40_000_000, 5_000_000_000] {
            let timeline = Timeline::covering(Some((1, last)));
            assert!(timeline.steps <= 60 && timeline.index(last) == timeline.steps - 1, "{timeline:?}");
        }
    }

    #[test]
    fn marks_are_few() {
        let timeline = Timeline::covering(Some((1_431_857_100, 1_432_155_959)));
        let marks = timeline.marks(8);
        let labels: Vec<String> = marks.times.iter().map(|time| marks.label(*time)).collect();
        assert_eq!(length(timeline.step), "2 h");
        assert_eq!(labels, ["12:00", "May 18", "12:00", "May 19", "12:00", "May 20", "12:00"]);
    }
}
