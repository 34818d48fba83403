//! How it looks when a master is killed: a row for the keys of each master.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::masters::Master;
use crate::outage_check::millis;
use crate::screen::{Frame, Line, Style, grouped};
use crate::served::Served;

/// Rates are those of this long.
const WINDOW: Duration = Duration::from_millis(500);
const STAGES: [&str; 4] = ["healthy", "master killed", "replica took over", "all store again"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    Healthy,
    Killed,
    TookOver,
    Again,
}

/// How many decisions there were in the last moments.
#[derive(Debug, Default)]
pub(crate) struct Rates {
    seen: VecDeque<(Instant, Served)>,
}

impl Rates {
    pub(crate) fn note(&mut self, now: Instant, sum: &Served) {
        // The oldest one that stays is as old as the window.
        while self.seen.get(1).is_some_and(|(time, _)| now.duration_since(*time) >= WINDOW) {
            self.seen.pop_front();
        }
        self.seen.push_back((now, sum.clone()));
    }

    /// Per second, about the keys of one master: those of the store, and degraded ones.
    fn of(&self, shard: usize) -> (u64, u64) {
        let (Some((begin, first)), Some((end, last))) = (self.seen.front(), self.seen.back()) else { return (0, 0) };
        let (Some(first), Some(last)) = (first.shards.get(shard), last.shards.get(shard)) else { return (0, 0) };
        let seconds = end.duration_since(*begin).as_secs_f64().max(FRAME_SECONDS);
        let rate = |before: u64, after: u64| (after.saturating_sub(before) as f64 / seconds).ceil() as u64;
        (rate(first.store, last.store), rate(first.open(), last.open()))
    }
}

/// The least time that a rate is computed over.
const FRAME_SECONDS: f64 = 0.1;

pub(crate) struct View {
    pub(crate) stage: Stage,
    /// How long after the kill the last decision was degraded.
    pub(crate) outage: Duration,
    rows: Vec<Row>,
}

struct Row {
    /// Of the master.
    port: u16,
    keys: usize,
}

impl View {
    pub(crate) fn new(masters: &[Master]) -> Self {
        let rows = masters.iter().map(|master| Row { port: master.port, keys: master.keys.len() }).collect();
        Self { stage: Stage::Healthy, outage: Duration::ZERO, rows }
    }

    /// The keys have another master now.
    pub(crate) fn replace(&mut self, row: usize, port: u16) {
        self.rows[row].port = port;
    }

    pub(crate) fn after_the_kill(&self) -> String {
        format!("{:.1} s after the kill", self.outage.as_secs_f64())
    }

    /// Whether the store decided last about every key of every process.
    pub(crate) fn is_steady(&self, all: &[Served]) -> bool {
        let is_steady = |one: &Served| {
            one.shards.len() == self.rows.len()
                && one.shards.iter().zip(&self.rows).all(|(shard, row)| shard.in_a_row >= row.keys as u64)
        };
        all.iter().all(is_steady)
    }

    pub(crate) fn frame(&self, elapsed: Duration, sum: &Served, rates: &Rates, width: usize) -> Frame {
        let mut block = vec![self.stages(width)];
        block.push(
            Line::default()
                .and(Style::Dim, format!("  {:<8} {:>4} {:>8} {:>8}   now", "master", "keys", "store", "open")),
        );
        let mut line = format!("{:>5.1} s ", elapsed.as_secs_f64());
        for (index, (row, shard)) in self.rows.iter().zip(&sum.shards).enumerate() {
            let (style, mut now) = now(rates.of(index));
            line.push_str(&format!(" :{} {now}{}", row.port, if index + 1 < self.rows.len() { ";" } else { "" }));
            if let Some((reason, _)) = shard.reasons().first().filter(|_| style == Style::Bad) {
                now.push_str(&format!(" ({reason})"));
            }
            let counts = columns(&format!(":{}", row.port), row.keys, shard.store, shard.open());
            block.push(Line::plain(counts).and(style, now));
        }
        let keys = self.rows.iter().map(|row| row.keys).sum();
        let together = columns("together", keys, sum.store(), sum.open());
        block.push(Line::plain(together).and(Style::Plain, format!("slowest {}", millis(sum.slowest))));
        Frame { block, line }
    }

    /// All stages, or where there is no room for them the one that is reached.
    fn stages(&self, width: usize) -> Line {
        let reached = self.stage as usize;
        let mut line = Line::plain("  ");
        for (index, name) in STAGES.into_iter().enumerate() {
            let arrow = if index > 0 { " → " } else { "" };
            line = line.and(Style::Dim, arrow);
            line = match index {
                _ if index == reached => line.and(Style::Bold, format!("[{name}]")),
                _ if index < reached => line.and(Style::Plain, name),
                _ => line.and(Style::Dim, name),
            };
        }
        if line.width() <= width { line } else { Line::plain("  ").and(Style::Bold, format!("[{}]", STAGES[reached])) }
    }
}

fn columns(name: &str, keys: usize, store: u64, open: u64) -> String {
    format!("  {name:<8} {keys:>4} {:>8} {:>8}   ", grouped(store), grouped(open))
}

/// Who decides at this moment.
fn now((store, open): (u64, u64)) -> (Style, String) {
    let (from_store, from_open) = (format!("store {}/s", grouped(store)), format!("open {}/s", grouped(open)));
    match (store, open) {
        (0, 0) => (Style::Dim, "waiting".to_owned()),
        (_, 0) => (Style::Good, from_store),
        (0, _) => (Style::Bad, from_open),
        _ => (Style::Bad, format!("{from_open}, {from_store}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::served::Shard;

    fn view(stage: Stage) -> View {
        View {
            stage,
            outage: Duration::ZERO,
            rows: vec![Row { port: 12_345, keys: 20 }, Row { port: 12_346, keys: 40 }],
        }
    }

    fn served(store: u64, open: u64) -> Served {
        let open = (open > 0).then(|| ("Connection".to_owned(), open)).into_iter().collect();
        Served { shards: vec![Shard { store, open, in_a_row: 20 }, Shard::default()], slowest: Duration::ZERO }
    }

    #[test]
    fn it_fits_into_eighty_columns() {
        let mut rates = Rates::default();
        let now = Instant::now();
        rates.note(now, &served(0, 0));
        rates.note(now + Duration::from_millis(400), &served(3_999, 3_999));
        let frame = view(Stage::Killed).frame(Duration::ZERO, &served(999_999, 99_999), &rates, 79);
        assert!(frame.block.iter().all(|line| line.width() <= 79), "{:?}", frame.block);
        assert!(frame.line.contains(":12345 open 9,998/s, store 9,998/s; :12346 waiting"), "{}", frame.line);
    }

    #[test]
    fn a_narrow_screen_shows_the_stage_that_is_reached() {
        for stage in [Stage::Healthy, Stage::Killed, Stage::TookOver, Stage::Again] {
            assert!(view(stage).stages(79).width() > 60);
            assert!(view(stage).stages(40).width() < 40);
        }
    }

    #[test]
    fn all_must_have_been_asked_since_the_last_degraded_decision() {
        let view = view(Stage::Healthy);
        let mut served = served(1, 0);
        assert!(!view.is_steady(&[served.clone()]) && !view.is_steady(&[Served::default()]));
        served.shards[1].in_a_row = 40;
        assert!(view.is_steady(&[served]));
    }
}
