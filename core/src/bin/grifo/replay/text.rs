//! A replay as text.

use super::Report;
use super::tally::Tally;
use super::timeline::{length, moment};
use crate::terminal::{Paint, grouped, safe};

const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// The longest part of a key that is shown, in characters.
const LONGEST_SHOWN: usize = 80;

pub(super) fn of(report: &Report<'_>, paint: Paint) -> String {
    let mut text = head(report, paint);
    for (name, tally) in &report.limits {
        text.push('\n');
        text.push_str(&paint.title(name));
        text.push('\n');
        text.push_str(&counts(report, tally, paint));
        text.push_str(&most_denied(report, tally));
        text.push_str(&timeline(report, tally, paint));
    }
    text
}

fn head(report: &Report<'_>, paint: Paint) -> String {
    let log = report.log;
    let bad = format!("{} bad", grouped(log.bad_lines()));
    let bad = if log.bad_lines() > 0 { paint.bad(&bad) } else { bad };
    let mut text = format!(
        "{} lines, {bad}; {} keys ({}); decided by {}\n",
        grouped(log.lines),
        grouped(log.keys.len() as u64),
        report.key.name(),
        safe(report.store.as_bytes())
    );
    if let Some((first, last)) = log.span() {
        text.push_str(&format!("{} to {} UTC\n", moment(first), moment(last)));
    }
    for (fault, bad) in log.faults() {
        text.push_str(&format!(
            "  left out: {} {}; the first is line {}\n",
            grouped(bad.count),
            fault.text(),
            bad.first
        ));
    }
    text
}

fn counts(report: &Report<'_>, tally: &Tally, paint: Paint) -> String {
    let requests = report.log.records.len() as u64;
    let keys = report.log.keys.len() as u64;
    let row = |name: &str, number: u64| format!("  {name:<17}{:>12}", grouped(number));
    let share = |name: &str, number: u64, of: u64| format!("{}{}", row(name, number), percent(number, of));
    let rows = [
        row("requests", requests),
        paint.good(&share("allowed", tally.total_allowed(), requests)),
        paint.bad(&share("denied", tally.total_denied(), requests)),
        row("distinct keys", keys),
        share("keys ever denied", tally.keys_ever_denied(), keys),
    ];
    rows.join("\n") + "\n"
}

fn percent(part: u64, whole: u64) -> String {
    if whole == 0 { String::new() } else { format!("{:>8.2} %", part as f64 * 100.0 / whole as f64) }
}

fn most_denied(report: &Report<'_>, tally: &Tally) -> String {
    let list = tally.most_denied(report.log);
    if list.is_empty() {
        return String::new();
    }
    let mut text = format!("  most denied\n{:>14}{:>12}  key\n", "denied", "requests");
    for one in list {
        text.push_str(&format!("{:>14}{:>12}  {}\n", grouped(one.denied), grouped(one.requests), shown(one.key)));
    }
    text
}

fn shown(key: &[u8]) -> String {
    let text = safe(key);
    match text.char_indices().nth(LONGEST_SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.into_owned(),
    }
}

fn timeline(report: &Report<'_>, tally: &Tally, paint: Paint) -> String {
    let timeline = report.timeline;
    if timeline.steps == 0 {
        return String::new();
    }
    let row = |name: &str, numbers: &[u64], bars: String| {
        let most = numbers.iter().copied().max().unwrap_or_default();
        format!("  {name:<8}│{bars}│ at most {}\n", grouped(most))
    };
    format!(
        "  timeline from {} UTC, a bar for each {}\n{}{}",
        moment(timeline.start),
        length(timeline.step),
        row("allowed", &tally.allowed, paint.good(&bars(&tally.allowed))),
        row("denied", &tally.denied, paint.bad(&bars(&tally.denied)))
    )
}

/// A bar for each number, the largest at full height; only zero has none.
fn bars(numbers: &[u64]) -> String {
    let most = numbers.iter().copied().max().unwrap_or_default();
    let bar = |number: &u64| match number {
        0 => ' ',
        _ => BARS[((number * 8).div_ceil(most) - 1) as usize],
    };
    numbers.iter().map(bar).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_grow_with_the_numbers() {
        assert_eq!(bars(&[0, 1, 8, 4, 5]), " ▁█▄▅");
        assert_eq!(bars(&[0, 1]), " █");
        assert_eq!(bars(&[]), "");
    }

    #[test]
    fn long_keys_are_cut() {
        assert_eq!(shown(&[b'a'; 100]).chars().count(), 81);
        assert_eq!(shown(b"\x1b"), "\\u{1b}");
    }
}
