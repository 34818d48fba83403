//! Which keys are asked about, and in which order.

use fastrand::Rng;

/// Every run asks about the same keys in the same order.
const SEED: u64 = 20_240_229;
const ZIPF_DRAWS: usize = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keys {
    /// All of so many, as often as each other.
    Distinct(usize),
    One,
    /// The n-th of so many as often as 1/n says.
    Zipf(usize),
}

impl Keys {
    pub(crate) const fn count(self) -> usize {
        match self {
            Self::Distinct(count) | Self::Zipf(count) => count,
            Self::One => 1,
        }
    }

    /// All keys, in an order that a map's memory does not follow.
    pub(crate) fn names(self) -> Vec<String> {
        let mut numbers: Vec<usize> = (0..self.count()).collect();
        Rng::with_seed(SEED).shuffle(&mut numbers);
        numbers.into_iter().map(name).collect()
    }

    /// Places in that list, to be walked through again and again: one after the other where it can be, so that the walk costs
    /// nothing beside what is measured.
    pub(crate) fn order(self) -> Vec<u32> {
        match self {
            Self::Distinct(_) | Self::One => (0..self.count() as u32).collect(),
            Self::Zipf(count) => zipf(count, &mut Rng::with_seed(SEED)),
        }
    }
}

/// 16 bytes.
pub(crate) fn name(number: usize) -> String {
    format!("user:{number:011}")
}

fn zipf(count: usize, random: &mut Rng) -> Vec<u32> {
    let mut sums = Vec::with_capacity(count);
    let mut sum = 0.0;
    for rank in 1..=count {
        sum += 1.0 / rank as f64;
        sums.push(sum);
    }
    let mut draw = || {
        let point = random.f64() * sum;
        sums.partition_point(|up_to| *up_to <= point).min(count - 1) as u32
    };
    (0..ZIPF_DRAWS).map(|_| draw()).collect()
}
