//! An access log in memory: one small record for each line, every key once.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use clap::ValueEnum;
use indexmap::IndexSet;
use indicatif::ProgressBar;

use super::line::{self, Fault, Line};
use crate::failure::Failure;
use crate::terminal::{progress, safe};

/// The longest line that is read, in bytes. What is longer is no access log, and must not fill the memory.
const LONGEST_LINE: usize = 65_536;
/// How many lines are read between two steps of the progress bar.
const LINES_PER_STEP: u64 = 4096;

/// What is limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum KeyKind {
    /// The client's address, the first field
    Ip,
    /// The path of the request, without its query
    Path,
    /// Both together
    #[value(name = "ip+path")]
    IpPath,
}

impl KeyKind {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Ip => "ip",
            Self::Path => "path",
            Self::IpPath => "ip+path",
        }
    }
}

/// One request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Record {
    /// Since the Unix epoch.
    pub(super) seconds: u64,
    /// Index among the keys.
    pub(super) key: usize,
}

/// Lines that were left out for one reason.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct BadLines {
    pub(super) count: u64,
    /// Number of the first one, counted from 1.
    pub(super) first: u64,
}

#[derive(Debug, Default)]
pub(super) struct Log {
    /// In stable order of their time.
    pub(super) records: Vec<Record>,
    pub(super) keys: IndexSet<Box<[u8]>>,
    pub(super) requests_by_key: Vec<u64>,
    pub(super) lines: u64,
    /// For each [`Fault`].
    pub(super) bad: [BadLines; Fault::ALL.len()],
}

impl Log {
    /// Reads a file, or stdin for `-`.
    pub(super) fn read(path: &Path, kind: KeyKind) -> Result<Self, Failure> {
        let failed = |error: io::Error| {
            let name = safe(path.as_os_str().as_encoded_bytes()).into_owned();
            Failure::Usage(format!("the log {name} cannot be read: {error}"))
        };
        if path == Path::new("-") {
            let bar = progress("reading", None, true);
            return Self::read_from(io::stdin().lock(), kind, &bar).map_err(failed)?.complete();
        }
        let file = File::open(path).map_err(failed)?;
        let size = file.metadata().map_err(failed)?.len();
        let bar = progress("reading", Some(size), true);
        Self::read_from(BufReader::new(file), kind, &bar).map_err(failed)?.complete()
    }

    fn read_from(mut input: impl BufRead, kind: KeyKind, bar: &ProgressBar) -> io::Result<Self> {
        let mut log = Self::default();
        let mut line = Vec::new();
        let mut bytes = 0;
        while let Some(fits) = next_line(&mut input, &mut line)? {
            log.lines += 1;
            bytes += line.len() as u64 + 1;
            let parsed = if fits { line::parse(line.trim_ascii_end()) } else { Err(Fault::Length) };
            match parsed {
                Ok(line) => log.add(&line, kind),
                Err(fault) => log.leave_out(fault),
            }
            if log.lines.is_multiple_of(LINES_PER_STEP) {
                bar.set_position(bytes);
            }
        }
        bar.finish_and_clear();
        log.records.sort_by_key(|record| record.seconds);
        Ok(log)
    }

    fn add(&mut self, line: &Line<'_>, kind: KeyKind) {
        let both;
        let key = match kind {
            KeyKind::Ip => line.host,
            KeyKind::Path => line.path,
            KeyKind::IpPath => {
                both = [line.host, line.path].join(&b' ');
                &both
            }
        };
        let index = match self.keys.get_index_of(key) {
            Some(index) => index,
            None => self.keys.insert_full(key.into()).0,
        };
        self.requests_by_key.resize(self.keys.len(), 0);
        self.requests_by_key[index] += 1;
        self.records.push(Record { seconds: line.seconds, key: index });
    }

    fn leave_out(&mut self, fault: Fault) {
        let bad = &mut self.bad[fault as usize];
        bad.count += 1;
        if bad.count == 1 {
            bad.first = self.lines;
        }
    }

    /// A log without any good line is not an access log.
    fn complete(self) -> Result<Self, Failure> {
        if self.records.is_empty() && self.lines > 0 {
            let (fault, _) = self.faults().next().unwrap_or((Fault::Format, BadLines::default()));
            return Err(Failure::Usage(format!(
                "not one line of {} is good, and line 1 is {}; is it an access log, and not compressed?",
                self.lines,
                fault.text()
            )));
        }
        Ok(self)
    }

    /// Why lines were left out, in the order in which that first happened.
    pub(super) fn faults(&self) -> impl Iterator<Item = (Fault, BadLines)> {
        let mut faults: Vec<_> = Fault::ALL.into_iter().zip(self.bad).filter(|(_, bad)| bad.count > 0).collect();
        faults.sort_by_key(|(_, bad)| bad.first);
        faults.into_iter()
    }

    pub(super) fn bad_lines(&self) -> u64 {
        self.bad.iter().map(|bad| bad.count).sum()
    }

    /// Times of the first and the last request.
    pub(super) fn span(&self) -> Option<(u64, u64)> {
        Some((self.records.first()?.seconds, self.records.last()?.seconds))
    }
}

/// Reads the next line, without its end, and says whether it was short enough to be kept; none at the end of the input.
fn next_line(input: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<Option<bool>> {
    line.clear();
    let most = LONGEST_LINE as u64 + 1;
    if input.by_ref().take(most).read_until(b'\n', line)? == 0 {
        return Ok(None);
    }
    if line.last() == Some(&b'\n') {
        line.pop();
        return Ok(Some(true));
    }
    if line.len() > LONGEST_LINE {
        input.skip_until(b'\n')?;
        return Ok(Some(false));
    }
    Ok(Some(true))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &[u8]) -> Log {
        Log::read_from(text, KeyKind::IpPath, &ProgressBar::hidden()).expect("memory can be read")
    }

    fn line(host: &str, time: &str, path: &str) -> String {
        format!("{host} - - [17/May/2015:{time} +0000] \"GET {path} HTTP/1.1\" 200 1\r\n")
    }

    #[test]
    fn lines_come_in_stable_order_of_their_time() {
        let text = line("b", "10:00:01", "/2") + &line("a", "10:00:00", "/1") + &line("a", "10:00:01", "/3?x");
        let log = read(text.as_bytes());
        let keys: Vec<&[u8]> = log.records.iter().map(|record| &*log.keys[record.key]).collect();
        assert_eq!(keys, [b"a /1".as_slice(), b"b /2", b"a /3"]);
        assert_eq!(log.requests_by_key, [1, 1, 1]);
    }

    #[test]
    fn a_long_line_is_one_bad_line() {
        let path = "/".repeat(LONGEST_LINE - line("a", "10:00:00", "").len() + 1);
        let longest = line("a", "10:00:00", &path);
        let text = longest.clone() + "x" + &longest + &"y".repeat(300_000) + "\n" + &longest + "z";
        let log = read(text.as_bytes());
        assert_eq!((log.lines, log.records.len(), log.bad_lines()), (5, 2, 3));
        assert_eq!(log.bad[Fault::Length as usize].count, 2);
        assert_eq!(log.bad[Fault::Length as usize].first, 2);
    }
}
