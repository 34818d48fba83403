//! What was measured, for people and for machines.

use std::time::Duration;

use serde_json::{Value, json};

use super::load::Measured;
use crate::terminal::{Paint, grouped, safe};

#[derive(Debug)]
pub(super) struct Report {
    /// Name and version.
    pub(super) server: String,
    pub(super) limit: String,
    pub(super) keys: u32,
    pub(super) callers: u32,
    pub(super) measured: Measured,
}

impl Report {
    fn per_second(&self) -> f64 {
        self.measured.tally.total() as f64 / self.measured.seconds
    }

    pub(super) fn text(&self, paint: Paint) -> String {
        let (measured, tally) = (&self.measured, &self.measured.tally);
        let percent = |count| tally.share(count) * 100.0;
        let head = format!(
            "{}: {}, {} keys, {} callers, {:.1} s",
            safe(self.server.as_bytes()),
            self.limit,
            grouped(self.keys.into()),
            grouped(self.callers.into()),
            measured.seconds
        );
        let mut text = format!(
            "{}\ndecisions  {} a second, {} in all\nlatency    p50 {}, p99 {}, p99.9 {}\nallowed    {:.1} %\ndenied     {:.1} %\n",
            paint.title(&head),
            grouped(self.per_second() as u64),
            grouped(tally.total()),
            milliseconds(measured.p50),
            milliseconds(measured.p99),
            milliseconds(measured.p999),
            percent(tally.allowed),
            percent(tally.denied)
        );
        let degraded = format!("{:.1} %", percent(tally.degraded()));
        let reasons: Vec<String> =
            tally.degraded.iter().map(|(why, count)| format!("{why} {}", grouped(*count))).collect();
        match tally.degraded() {
            0 => text.push_str(&format!("degraded   {degraded}\n")),
            _ => text.push_str(&format!("degraded   {}: {}\n", paint.bad(&degraded), reasons.join(", "))),
        }
        text
    }

    pub(super) fn json(&self) -> Value {
        let (measured, tally) = (&self.measured, &self.measured.tally);
        json!({
            "server": self.server,
            "limit": self.limit,
            "keys": self.keys,
            "callers": self.callers,
            "seconds": measured.seconds,
            "decisions": tally.total(),
            "decisions_per_second": self.per_second(),
            "latency": {
                "p50": measured.p50.as_secs_f64(),
                "p99": measured.p99.as_secs_f64(),
                "p99.9": measured.p999.as_secs_f64(),
            },
            "allowed": tally.share(tally.allowed),
            "denied": tally.share(tally.denied),
            "degraded": tally.share(tally.degraded()),
            "reasons": tally.degraded,
        })
    }
}

fn milliseconds(time: Duration) -> String {
    format!("{:.3} ms", time.as_secs_f64() * 1e3)
}
