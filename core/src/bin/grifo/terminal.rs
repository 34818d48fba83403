//! Printing: colour where it is seen, nothing that could command a terminal, and progress.

use std::borrow::Cow;
use std::env;
use std::io::{self, IsTerminal, Write, stderr, stdout};

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;

/// Colours, unless nobody would see them or NO_COLOR asks for none.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Paint {
    on: bool,
}

impl Paint {
    pub(crate) fn of_stdout() -> Self {
        Self::of(stdout().is_terminal())
    }

    pub(crate) fn of_stderr() -> Self {
        Self::of(stderr().is_terminal())
    }

    fn of(is_terminal: bool) -> Self {
        let unwanted = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let unable = env::var_os("TERM").is_some_and(|term| term == "dumb");
        Self { on: is_terminal && !unwanted && !unable }
    }

    pub(crate) const fn is_on(self) -> bool {
        self.on
    }

    pub(crate) fn good(self, text: &str) -> String {
        self.paint("32", text)
    }

    pub(crate) fn bad(self, text: &str) -> String {
        self.paint("31", text)
    }

    pub(crate) fn title(self, text: &str) -> String {
        self.paint("1", text)
    }

    fn paint(self, code: &str, text: &str) -> String {
        if self.on { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }
}

/// Prints to stdout. A reader that has gone away, such as `head`, has read what it wanted.
pub(crate) fn print(text: &str) -> io::Result<()> {
    let mut out = stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
        _ => Ok(()),
    }
}

/// Prints JSON that is safe on a terminal too.
pub(crate) fn print_json(value: &Value) -> io::Result<()> {
    let mut text = String::new();
    for c in format!("{value:#}\n").chars() {
        if is_safe(c) || c == '\n' {
            text.push(c);
        } else {
            // Outside of strings JSON has none of these, and inside them this is the same text.
            text.push_str(&format!("\\u{:04x}", u32::from(c)));
        }
    }
    print(&text)
}

/// Text whose control characters, text direction marks and bytes that are no UTF-8 are written as escapes.
pub(crate) fn safe(bytes: &[u8]) -> Cow<'_, str> {
    match str::from_utf8(bytes) {
        Ok(text) if text.chars().all(is_safe) => Cow::Borrowed(text),
        _ => Cow::Owned(escape(bytes)),
    }
}

fn escape(bytes: &[u8]) -> String {
    let mut escaped = String::new();
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if is_safe(c) {
                escaped.push(c);
            } else {
                escaped.extend(c.escape_unicode());
            }
        }
        chunk.invalid().iter().for_each(|byte| escaped.push_str(&format!("\\x{byte:02x}")));
    }
    escaped
}

/// Neither commands a terminal nor changes the order in which text is shown. All others lie below U+10000.
fn is_safe(c: char) -> bool {
    !c.is_control()
        && !matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{61c}')
}

/// A bar on stderr, if that is a terminal: of `total` steps or, where nobody knows how many there are, of unknown length.
pub(crate) fn progress(what: &'static str, total: Option<u64>, unit_is_bytes: bool) -> ProgressBar {
    let counts = match (unit_is_bytes, total) {
        (true, Some(_)) => "{bytes}/{total_bytes}",
        (true, None) => "{bytes}",
        (false, _) => "{human_pos}/{human_len}",
    };
    let bar = total.map_or_else(ProgressBar::new_spinner, ProgressBar::new);
    let gauge = if total.is_some() { "{wide_bar} " } else { "{spinner} " };
    let template = format!("{{msg}} {gauge}{counts} {{elapsed}}");
    if let Ok(style) = ProgressStyle::with_template(&template) {
        bar.set_style(style);
    }
    bar.with_message(what)
}

/// A number with its thousands apart.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_stand_apart() {
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
    }

    #[test]
    fn nothing_commands_the_terminal() {
        assert_eq!(safe("ü/\\x16".as_bytes()), "ü/\\x16");
        assert_eq!(safe(b"\x1b[2J\xff"), "\\u{1b}[2J\\xff");
        assert_eq!(safe("\u{9b}2J\u{202e}".as_bytes()), "\\u{9b}2J\\u{202e}");
    }
}
