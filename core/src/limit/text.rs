//! The text form: `[algorithm] COUNT/PERIOD [burst N]`, several joined by ` + `.

use std::fmt;
use std::time::Duration;

use super::{Algorithm, Limit, MAX_EXACT, invalid};
use crate::error::Error;

/// Quoted in errors no further than this.
const QUOTED: usize = 60;
const ALGORITHMS: [Algorithm; 4] =
    [Algorithm::TokenBucket, Algorithm::SlidingWindow, Algorithm::SlidingWindowCounter, Algorithm::FixedWindow];
/// The spellings of each unit, and its milliseconds.
const UNITS: [(&[&str], u64); 5] = [
    (&["ms", "millisecond", "milliseconds"], 1),
    (&["s", "sec", "secs", "second", "seconds"], 1_000),
    (&["min", "mins", "minute", "minutes"], 60_000),
    (&["h", "hour", "hours"], 3_600_000),
    (&["d", "day", "days"], 86_400_000),
];

pub(super) fn parse(text: &str) -> Result<Vec<Limit>, Error> {
    text.split('+').map(parse_limit).collect()
}

pub(super) fn parse_limit(text: &str) -> Result<Limit, Error> {
    let refuse = |why: &str| {
        invalid(format!(
            "{:?}: {why}; write it like \"100/min\", \"token-bucket 100/min burst 20\" or \"sliding-window 10/15min\"",
            quote(text)
        ))
    };
    let lower = text.to_ascii_lowercase();
    let mut rest = lower.trim();
    let mut algorithm = Algorithm::TokenBucket;
    if rest.starts_with(|first: char| first.is_ascii_alphabetic()) {
        let end = rest.find(|c: char| !c.is_ascii_alphabetic() && c != '-').unwrap_or(rest.len());
        let name = &rest[..end];
        algorithm = ALGORITHMS
            .into_iter()
            .find(|algorithm| algorithm.name() == name)
            .ok_or_else(|| refuse("there is no such algorithm"))?;
        rest = rest[end..].trim_start();
    }
    let (count, rest) = number(rest).map_err(&refuse)?;
    let count = count.ok_or_else(|| refuse("a whole number is wanted as its count"))?;
    let rest = rest.trim_start().strip_prefix('/').ok_or_else(|| refuse("a \"/\" is wanted after the count"))?;
    let (multiple, rest) = number(rest.trim_start()).map_err(&refuse)?;
    let rest = rest.trim_start();
    let end = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
    let unit = unit(&rest[..end]).map_err(&refuse)?;
    let burst = burst(rest[end..].trim_start()).map_err(&refuse)?;
    if burst.is_some() && algorithm != Algorithm::TokenBucket {
        return Err(refuse("burst belongs to token-bucket alone"));
    }
    let period = multiple.unwrap_or(1).saturating_mul(unit);
    Limit::new(algorithm, count, Duration::from_millis(period), burst.unwrap_or(count))
        .map_err(|error| invalid(format!("{:?}: {}", quote(text), error.message())))
}

/// A number, if there is one, and what follows it.
fn number(text: &str) -> Result<(Option<u64>, &str), &'static str> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    if rest.starts_with(['.', ',']) {
        return Err("fractions are refused: a longer period makes the number whole");
    }
    if digits.is_empty() {
        return Ok((None, rest));
    }
    match digits.parse() {
        Ok(number) if number <= MAX_EXACT => Ok((Some(number), rest)),
        _ => Err("a number is too large to count exactly; the largest is 9007199254740991"),
    }
}

fn unit(name: &str) -> Result<u64, &'static str> {
    match name {
        "" => Err("the period has no unit; there are ms, s, min, h and d"),
        "m" => Err("\"m\" could be minute or month; write min"),
        _ => UNITS
            .iter()
            .find(|(names, _)| names.contains(&name))
            .map(|(_, milliseconds)| *milliseconds)
            .ok_or("there is no such unit; there are ms, s, min, h and d"),
    }
}

fn burst(text: &str) -> Result<Option<u64>, &'static str> {
    if text.is_empty() {
        return Ok(None);
    }
    let rest = text.strip_prefix("burst").ok_or("only \"burst N\" may follow the period")?;
    match number(rest.trim_start())? {
        (Some(burst), "") => Ok(Some(burst)),
        _ => Err("a whole number is wanted after burst, and nothing behind it"),
    }
}

/// A piece of the user's text, short enough for a message.
fn quote(text: &str) -> String {
    let mut quoted: String = text.trim().chars().take(QUOTED).collect();
    if quoted.len() < text.trim().len() {
        quoted.push('…');
    }
    quoted
}

/// The shortest text that reads back as the same Limit.
pub(super) fn write(limit: &Limit, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let milliseconds = limit.period_micros() / 1000;
    let (names, unit) = UNITS.iter().rfind(|(_, unit)| milliseconds.is_multiple_of(*unit)).unwrap_or(&UNITS[0]);
    if limit.algorithm() != Algorithm::TokenBucket {
        write!(f, "{} ", limit.algorithm().name())?;
    }
    write!(f, "{}/", limit.count())?;
    if milliseconds != *unit {
        write!(f, "{}", milliseconds / unit)?;
    }
    write!(f, "{}", names[0])?;
    if limit.capacity() != limit.count() {
        write!(f, " burst {}", limit.capacity())?;
    }
    Ok(())
}
