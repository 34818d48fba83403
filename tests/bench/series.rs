//! The runs of one row: the contenders take turns, since a machine is not equally fast at all times.

use crate::contender::{Contender, Times};
use crate::place::Place;
use crate::plan::Row;
use crate::sample::{Metric, Sample, median};

#[derive(Debug)]
pub(crate) struct Series {
    pub(crate) row: Row,
    results: Vec<(Contender, Outcome)>,
}

/// The samples of all runs, or why one failed.
type Outcome = Result<Vec<Sample>, String>;

impl Series {
    /// One run that is not counted fills the store with the keys. Calls `progress` after every run.
    pub(crate) fn measure(place: &Place, row: Row, (runs, times): (usize, Times), progress: &dyn Fn()) -> Self {
        place.clear();
        let mut results: Vec<(Contender, Outcome)> = row.contenders.iter().map(|it| (*it, Ok(Vec::new()))).collect();
        for run in 0..=runs {
            for (contender, outcome) in &mut results {
                if let Ok(samples) = outcome {
                    match contender.measure(place, row.task, times) {
                        Ok(sample) if run > 0 => samples.push(sample),
                        Ok(_) => {}
                        Err(error) => *outcome = Err(error),
                    }
                }
                progress();
            }
        }
        place.clear();
        Self { row, results }
    }

    /// Each contender, and the middle of its runs.
    pub(crate) fn middles(&self) -> impl Iterator<Item = (Contender, Result<Sample, &str>)> {
        self.results.iter().map(|(contender, outcome)| match outcome {
            Ok(samples) => (*contender, Ok(Sample::middle(samples))),
            Err(error) => (*contender, Err(error.as_str())),
        })
    }

    pub(crate) fn middle(&self, contender: Contender) -> Option<Sample> {
        self.middles().find(|(one, _)| *one == contender)?.1.ok()
    }

    /// The middle of the ratios of runs that were made one after the other.
    pub(crate) fn ratio(&self, metric: Metric, ours: Contender, peer: Contender) -> Option<f64> {
        let pairs = self.samples(ours)?.iter().zip(self.samples(peer)?);
        median(pairs.filter_map(|(ours, peer)| Some(ours.get(metric)? / peer.get(metric)?)).collect())
    }

    fn samples(&self, contender: Contender) -> Option<&[Sample]> {
        self.results.iter().find(|(one, _)| *one == contender)?.1.as_deref().ok()
    }
}
