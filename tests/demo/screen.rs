//! What is printed: lines that stay, and below them, on a terminal, a block that is redrawn in place. Elsewhere a plain
//! line takes the place of the block now and then.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use rustix::termios::tcgetwinsize;

const RESET: &str = "\x1b[0m";
/// Where nothing is known about the terminal.
const USUAL: (usize, usize) = (80, 24);
/// Without a terminal, a line this often.
const LINE_EVERY: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    Plain,
    Bold,
    Dim,
    Good,
    Bad,
}

impl Style {
    const fn code(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Bold => "\x1b[1m",
            Self::Dim => "\x1b[2m",
            Self::Good => "\x1b[32m",
            Self::Bad => "\x1b[33m",
        }
    }
}

/// A line of text in several styles.
#[derive(Debug, Clone, Default)]
pub(crate) struct Line {
    parts: Vec<(Style, String)>,
}

impl Line {
    pub(crate) fn plain(text: impl Into<String>) -> Self {
        Self::default().and(Style::Plain, text)
    }

    pub(crate) fn and(mut self, style: Style, text: impl Into<String>) -> Self {
        self.parts.push((style, text.into()));
        self
    }

    pub(crate) fn width(&self) -> usize {
        self.parts.iter().map(|(_, text)| text.chars().count()).sum()
    }

    /// What fits in so many columns.
    fn cut(&self, columns: usize) -> Self {
        let mut left = columns;
        let mut parts = Vec::new();
        for (style, text) in &self.parts {
            let fitting: String = text.chars().take(left).collect();
            left -= fitting.chars().count();
            parts.push((*style, fitting));
        }
        Self { parts }
    }

    fn text(&self, colour: bool) -> String {
        let paint = |(style, text): &(Style, String)| match style.code() {
            code if colour && !code.is_empty() && !text.is_empty() => format!("{code}{text}{RESET}"),
            _ => text.clone(),
        };
        self.parts.iter().map(paint).collect()
    }
}

/// The state of things at one moment.
pub(crate) struct Frame {
    /// Nothing in it is wider than the screen.
    pub(crate) block: Vec<Line>,
    /// The same in one line, where the block has no room.
    pub(crate) line: String,
}

pub(crate) struct Screen {
    in_place: bool,
    colour: bool,
    /// How many lines the block has.
    drawn: usize,
    last_line: Option<Instant>,
}

impl Screen {
    pub(crate) fn new() -> Self {
        let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let in_place = io::stdout().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb");
        Self { in_place, colour: in_place && !is_set("NO_COLOR"), drawn: 0, last_line: None }
    }

    /// How wide a line may be, so that it does not wrap.
    pub(crate) fn width(&self) -> usize {
        if self.in_place { size().0.saturating_sub(1) } else { USUAL.0 }
    }

    /// Prints lines that stay, above the block.
    pub(crate) fn say(&mut self, style: Style, text: &str) {
        let mut output = self.erase();
        for line in text.lines().flat_map(|line| wrap(line, self.width())) {
            output.push_str(&Line::default().and(style, line.trim_end()).text(self.colour));
            output.push('\n');
        }
        print(&output);
    }

    /// Draws a frame in place of the one before. The last one is drawn whatever the time.
    pub(crate) fn draw(&mut self, frame: &Frame, is_last: bool) {
        if !self.in_place {
            if is_last || self.last_line.is_none_or(|last| last.elapsed() >= LINE_EVERY) {
                self.last_line = Some(Instant::now());
                print(&format!("{}\n", frame.line));
            }
            return;
        }
        let (columns, rows) = size();
        let short = [Line::plain(frame.line.as_str())];
        // The cursor stands below the block, and one line above it keeps what was said in sight.
        let lines = if frame.block.len() + 2 > rows { &short } else { frame.block.as_slice() };
        let mut output = self.erase();
        for line in lines {
            output.push_str(&line.cut(columns.saturating_sub(1)).text(self.colour));
            output.push('\n');
        }
        print(&output);
        self.drawn = if is_last { 0 } else { lines.len() };
    }

    /// Goes back to where the block begins.
    fn erase(&mut self) -> String {
        match std::mem::take(&mut self.drawn) {
            0 => String::new(),
            lines => format!("\x1b[{lines}A\r\x1b[J"),
        }
    }
}

/// Nobody may be there to read it any more, which is no trouble of ours.
fn print(text: &str) {
    let mut output = io::stdout().lock();
    let _ = output.write_all(text.as_bytes());
    let _ = output.flush();
}

/// Columns and rows.
fn size() -> (usize, usize) {
    let size = tcgetwinsize(io::stdout()).ok().filter(|size| size.ws_col > 0 && size.ws_row > 0);
    size.map_or(USUAL, |size| (size.ws_col.into(), size.ws_row.into()))
}

/// Breaks a line at spaces; what follows is indented a little more than its beginning.
fn wrap(line: &str, width: usize) -> Vec<String> {
    let indent = " ".repeat(line.len() - line.trim_start().len());
    let mut lines = Vec::new();
    let mut current = indent.clone();
    // Spaces within a line are kept, since they stand for columns.
    for word in line.trim_start().split_inclusive(' ') {
        let has_words = !current.trim_start().is_empty();
        if has_words && current.chars().count() + word.trim_end().chars().count() > width {
            lines.push(std::mem::replace(&mut current, format!("{indent}  ")));
        }
        current.push_str(word);
    }
    lines.push(current);
    lines
}

/// 1234567 as 1,234,567.
pub(crate) fn grouped(number: u64) -> String {
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
    fn a_line_is_cut_whatever_its_styles() {
        let line = Line::plain("ab").and(Style::Good, "cd█").and(Style::Dim, "ef");
        assert_eq!(line.cut(4).text(false), "abcd");
        assert_eq!(line.cut(4).text(true), "ab\x1b[32mcd\x1b[0m");
        assert_eq!((line.cut(9).width(), line.cut(0).text(true).as_str()), (7, ""));
    }

    #[test]
    fn words_stay_whole() {
        assert_eq!(wrap("  one two three", 9), ["  one two ", "    three"]);
        assert_eq!(wrap("", 9), [""]);
        assert_eq!(wrap("unbreakable", 4), ["unbreakable"]);
    }
}
