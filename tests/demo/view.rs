//! The live view: redrawn in place on a terminal, else a line now and then.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use crate::tally::Count;

const BAR: usize = 24;
const GREEN: &str = "\x1b[32m";
const DIM: &str = "\x1b[2m";
const BOLD: &str = "\x1b[1m";
const PLAIN: &str = "\x1b[0m";
/// Without a terminal, a line this often.
const LINE_EVERY: Duration = Duration::from_secs(2);

/// The state of the run at one moment.
pub(crate) struct Snapshot {
    pub(crate) elapsed: Duration,
    pub(crate) time: Duration,
    pub(crate) counts: Vec<Count>,
    pub(crate) rate: u64,
}

impl Snapshot {
    fn admitted(&self) -> u64 {
        self.counts.iter().map(|count| count.admitted).sum()
    }

    fn denied(&self) -> u64 {
        self.counts.iter().map(|count| count.denied).sum()
    }

    /// What the limit allows in so much time.
    fn limit(&self, time: Duration) -> u64 {
        (self.rate as f64 * time.as_secs_f64()) as u64
    }
}

pub(crate) struct View {
    /// What takes part.
    noun: &'static str,
    in_place: bool,
    colour: bool,
    lines: usize,
    next_line: Duration,
}

impl View {
    pub(crate) fn new(noun: &'static str) -> Self {
        let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let in_place = io::stdout().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb");
        Self { noun, in_place, colour: in_place && !is_set("NO_COLOR"), lines: 0, next_line: LINE_EVERY }
    }

    pub(crate) fn draw(&mut self, snapshot: &Snapshot, is_last: bool) {
        let mut text = String::new();
        if self.in_place {
            let lines = self.table(snapshot);
            if self.lines > 0 {
                text.push_str(&format!("\x1b[{}A", self.lines));
            }
            self.lines = lines.len();
            lines.iter().for_each(|line| text.push_str(&format!("\r{line}\x1b[K\n")));
        } else if is_last || snapshot.elapsed >= self.next_line {
            self.next_line += LINE_EVERY;
            text = line(snapshot);
        }
        let mut output = io::stdout().lock();
        let _ = output.write_all(text.as_bytes());
        let _ = output.flush();
    }

    fn table(&self, snapshot: &Snapshot) -> Vec<String> {
        let whole = snapshot.limit(snapshot.time);
        let mut lines: Vec<String> = (1..)
            .zip(&snapshot.counts)
            .map(|(number, count)| {
                let share = self.bar(count.admitted, whole, GREEN);
                let (noun, denied) = (self.noun, grouped(count.denied));
                format!("  {noun:<7} {number} {share} {:>6} admitted {denied:>11} denied", count.admitted)
            })
            .collect();
        let (admitted, denied) = (snapshot.admitted(), grouped(snapshot.denied()));
        let so_far = snapshot.limit(snapshot.elapsed);
        let (name, total) = (self.paint(BOLD, "together"), self.bar(admitted, whole, GREEN));
        lines.push(format!("  {name}  {total} {admitted:>6} admitted {denied:>11} denied"));
        lines.push(format!("  limit     {} {so_far:>6} so far", self.bar(so_far, whole, DIM)));
        lines.push(format!("  {:.1} s of {:.0} s", snapshot.elapsed.as_secs_f64(), snapshot.time.as_secs_f64()));
        lines
    }

    fn bar(&self, part: u64, whole: u64, colour: &str) -> String {
        let filled = (part as usize * BAR).div_ceil(whole.max(1) as usize).min(BAR);
        self.paint(colour, &"█".repeat(filled)) + &self.paint(DIM, &"·".repeat(BAR - filled))
    }

    fn paint(&self, colour: &str, text: &str) -> String {
        if self.colour { format!("{colour}{text}{PLAIN}") } else { text.to_owned() }
    }
}

fn line(snapshot: &Snapshot) -> String {
    let each: Vec<String> = snapshot.counts.iter().map(|count| count.admitted.to_string()).collect();
    format!(
        "{:>5.1} s  admitted {} = {}, the limit allows about {}; denied {}\n",
        snapshot.elapsed.as_secs_f64(),
        each.join(" + "),
        snapshot.admitted(),
        snapshot.limit(snapshot.elapsed),
        grouped(snapshot.denied())
    )
}

/// 1234567 as 1,234,567.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped() {
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
    }

    #[test]
    fn a_bar_is_never_longer_than_its_place() {
        let view = View { noun: "process", in_place: true, colour: false, lines: 0, next_line: LINE_EVERY };
        for part in [0, 1, 50, 100, 1000] {
            assert_eq!(view.bar(part, 100, GREEN).chars().count(), BAR, "{part}");
        }
        assert_eq!(view.bar(0, 0, GREEN).chars().count(), BAR);
    }
}
