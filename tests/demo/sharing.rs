//! All share one limit and hammer it. What they were admitted in total must be what the limit allows over that time.

use std::thread;
use std::time::{Duration, Instant};

use crate::crew::Crew;
use crate::proof::{Proof, Verdict};
use crate::screen::{Frame, Line, Screen, Style, grouped};
use crate::tally::Count;
use crate::{FRAME, RATE};

const LONGEST_BAR: usize = 24;
/// A shorter bar would say nothing.
const SHORTEST_BAR: usize = 6;

/// The state of the run at one moment.
struct Snapshot<'a> {
    noun: &'a str,
    elapsed: Duration,
    time: Duration,
    counts: &'a [Count],
    /// What the limit allows up to now.
    allowed: u64,
}

pub(crate) fn run(
    proof: &mut Proof,
    crew: &mut Crew,
    screen: &mut Screen,
    noun: &'static str,
    time: Duration,
) -> Result<(), String> {
    proof.begin()?;
    let start = Instant::now();
    crew.share(proof.client(), proof.key())?;
    while start.elapsed() < time {
        // In this order, so that what was admitted is never shown as more than the limit allows.
        let counts = crew.counts()?;
        let elapsed = start.elapsed();
        let allowed = (RATE as f64 * elapsed.as_secs_f64()) as u64;
        screen.draw(&frame(&Snapshot { noun, elapsed, time, counts: &counts, allowed }, screen.width()), false);
        thread::sleep(FRAME.min(time.saturating_sub(start.elapsed())));
    }
    crew.stop()?;
    let counts = crew.counts()?;
    let verdict = proof.end(&counts)?;
    let elapsed = Duration::from_secs_f64(verdict.seconds);
    let last = Snapshot { noun, elapsed, time: elapsed, counts: &counts, allowed: verdict.allowed };
    screen.draw(&frame(&last, screen.width()), true);
    report(&verdict, screen)
}

/// In the words and numbers of the last frame.
fn report(verdict: &Verdict, screen: &mut Screen) -> Result<(), String> {
    let Verdict { clock, seconds, allowed, by_crew, left } = *verdict;
    screen.say(
        Style::Plain,
        &format!(
            "\nChecked on the {clock} clock, {seconds:.6} s from empty bucket to last denial:\n  \
             limit     {:>7} allowed, {RATE} a second\n  together  {:>7} admitted\n  left over {:>7} admitted at the end",
            grouped(allowed),
            grouped(by_crew),
            grouped(left)
        ),
    );
    let admitted = by_crew + left;
    if admitted == allowed {
        let admitted = grouped(admitted);
        screen.say(Style::Good, &format!("EXACT: {admitted} admitted, not one more and not one fewer."));
        return Ok(());
    }
    let (by, than) = if admitted > allowed { (admitted - allowed, "more") } else { (allowed - admitted, "fewer") };
    Err(format!("{admitted} were admitted, {by} {than} than the limit allows"))
}

fn frame(snapshot: &Snapshot<'_>, width: usize) -> Frame {
    let Snapshot { noun, elapsed, time, counts, allowed } = *snapshot;
    let admitted = counts.iter().map(|count| count.admitted).sum();
    let denied = counts.iter().map(|count| count.denied).sum();
    let whole = (RATE as f64 * time.as_secs_f64()) as u64;
    let row = |name: Line, number: u64, rest: String, style: Style| {
        let text = name.and(Style::Plain, format!(" {:>7} {rest:<28}", grouped(number)));
        let room = width.saturating_sub(text.width());
        if room < SHORTEST_BAR { text } else { bar(text, number, whole, room.min(LONGEST_BAR), style) }
    };
    let denied_text = |denied| format!("admitted {:>11} denied", grouped(denied));
    let mut block: Vec<Line> = (1..)
        .zip(counts)
        .map(|(number, count)| {
            let name = Line::plain(format!("  {noun:<7} {number}"));
            row(name, count.admitted, denied_text(count.denied), Style::Good)
        })
        .collect();
    let together = Line::plain("  ").and(Style::Bold, "together ");
    block.push(row(together, admitted, denied_text(denied), Style::Good));
    block.push(row(Line::plain("  limit    "), allowed, "allowed".to_owned(), Style::Dim));
    let (elapsed, time) = (elapsed.as_secs_f64(), time.as_secs_f64());
    block.push(Line::plain(format!("  {elapsed:.1} s of {time:.1} s")));
    let line = format!(
        "{elapsed:>5.1} s  together {} admitted, limit {} allowed, {} denied",
        grouped(admitted),
        grouped(allowed),
        grouped(denied)
    );
    Frame { block, line }
}

fn bar(line: Line, part: u64, whole: u64, length: usize, style: Style) -> Line {
    let filled = (part as usize * length).div_ceil(whole.max(1) as usize).min(length);
    line.and(style, "█".repeat(filled)).and(Style::Dim, "·".repeat(length - filled))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame_of(admitted: u64, width: usize) -> Frame {
        let counts = [Count { admitted, denied: 1_234_567 }; 4];
        let time = Duration::from_secs(8);
        frame(&Snapshot { noun: "process", elapsed: time, time, counts: &counts, allowed: 1600 }, width)
    }

    #[test]
    fn it_fits_however_narrow_the_screen() {
        for width in [48, 59, 67, 79, 200] {
            for admitted in [0, 1, 400, 99_999] {
                let frame = frame_of(admitted, width);
                let widest = frame.block.iter().map(Line::width).max().unwrap_or_default();
                assert!(widest <= width, "{widest} of {width}");
            }
        }
    }

    #[test]
    fn the_line_says_what_the_block_says() {
        assert!(frame_of(400, 79).line.contains("together 1,600 admitted, limit 1,600 allowed"));
        assert!(frame_of(400, 79).line.len() <= 79);
    }
}
