//! What one run measured, and the middle of several.

/// One number of a run. Some are not known everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Metric {
    PerSecond,
    /// Microseconds from call to answer, as are the next two.
    P50,
    P99,
    P999,
    /// Microseconds of processor time of this process for each decision, callers and all.
    ClientCpu,
    /// The same of the servers.
    ServerCpu,
    /// Script calls that the servers ran for each decision.
    StoreCalls,
    /// The part of the decisions that allowed.
    Allowed,
    /// Nanoseconds of one caller's time for each decision.
    Nanoseconds,
}

impl Metric {
    pub(crate) const ALL: [Self; 9] = [
        Self::PerSecond,
        Self::P50,
        Self::P99,
        Self::P999,
        Self::ClientCpu,
        Self::ServerCpu,
        Self::StoreCalls,
        Self::Allowed,
        Self::Nanoseconds,
    ];

    /// The name in JSON.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::PerSecond => "decisions_per_second",
            Self::P50 => "p50_us",
            Self::P99 => "p99_us",
            Self::P999 => "p99_9_us",
            Self::ClientCpu => "client_cpu_us",
            Self::ServerCpu => "server_cpu_us",
            Self::StoreCalls => "store_calls",
            Self::Allowed => "allowed",
            Self::Nanoseconds => "ns_per_decision",
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sample([Option<f64>; Metric::ALL.len()]);

impl Sample {
    pub(crate) fn get(&self, metric: Metric) -> Option<f64> {
        self.0[metric as usize]
    }

    pub(crate) fn set(&mut self, metric: Metric, value: Option<f64>) {
        self.0[metric as usize] = value;
    }

    /// Each number in the middle of its own.
    pub(crate) fn middle(samples: &[Self]) -> Self {
        let mut middle = Self::default();
        for metric in Metric::ALL {
            middle.set(metric, median(samples.iter().filter_map(|sample| sample.get(metric)).collect()));
        }
        middle
    }
}

pub(crate) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    let upper = *values.get(values.len() / 2)?;
    let lower = values[(values.len() - 1) / 2];
    Some((lower + upper) / 2.0)
}

/// The value that the given part of the values, which are in order, does not exceed.
pub(crate) fn quantile(sorted: &[u32], part: f64) -> Option<u32> {
    let last = sorted.len().checked_sub(1)?;
    Some(sorted[((sorted.len() as f64 * part) as usize).min(last)])
}
