//! One line of an access log in Common or Combined Log Format.

use jiff::fmt::strtime::BrokenDownTime;

/// 2150-01-01: up to here, and the longest period after it, the scripts' times are exact.
const LATEST: i64 = 5_680_281_600;

/// What a replay needs of a line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Line<'a> {
    /// Since the Unix epoch.
    pub(super) seconds: u64,
    pub(super) host: &'a [u8],
    /// The target of the request up to its query; `-` where the request has none.
    pub(super) path: &'a [u8],
}

/// Why a line is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    Format,
    Time,
    Range,
    Length,
}

impl Fault {
    pub(super) const ALL: [Self; 4] = [Self::Format, Self::Time, Self::Range, Self::Length];

    pub(super) const fn text(self) -> &'static str {
        match self {
            Self::Format => "neither in Common nor in Combined Log Format",
            Self::Time => "with a time that does not exist",
            Self::Range => "with a time before 1970 or after 2149",
            Self::Length => "longer than 64 KiB",
        }
    }
}

/// `HOST IDENT USER [TIME] "REQUEST" STATUS SIZE`, in the Combined format with ` "REFERRER" "AGENT"` behind it, and whatever
/// a server may have been told to add to that.
pub(super) fn parse(line: &[u8]) -> Result<Line<'_>, Fault> {
    let (host, time, request) = split(line).ok_or(Fault::Format)?;
    Ok(Line { seconds: seconds(time)?, host, path: path(request) })
}

fn split(line: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let (host, rest) = cut(line, b" ")?;
    // Names of users may hold blanks.
    let (names, rest) = cut(rest, b" [")?;
    let (ident, user) = cut(names, b" ")?;
    let (time, rest) = cut(rest, b"]")?;
    let (request, rest) = quoted(rest)?;
    let (status, rest) = word(rest)?;
    let (size, rest) = word(rest)?;
    let named = !host.is_empty() && !ident.is_empty() && !user.is_empty();
    let numbered = is_number(status) && status.len() <= 3 && is_number(size);
    (named && numbered && ends_well(rest)).then_some((host, time, request))
}

/// Whether what follows the size is nothing, or referrer and agent.
fn ends_well(rest: &[u8]) -> bool {
    if rest.is_empty() {
        return true;
    }
    let agent = quoted(rest).and_then(|(_, rest)| quoted(rest));
    agent.is_some_and(|(_, rest)| rest.first().is_none_or(|byte| *byte == b' '))
}

fn cut<'a>(text: &'a [u8], separator: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let at = text.windows(separator.len()).position(|window| window == separator)?;
    Some((&text[..at], &text[at + separator.len()..]))
}

/// What stands in quotes behind a blank, up to the first quote without a backslash before it.
fn quoted(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let text = text.strip_prefix(b" \"")?;
    let mut at = 0;
    loop {
        match text.get(at)? {
            b'"' => return Some((&text[..at], &text[at + 1..])),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

/// A word behind a blank.
fn word(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let text = text.strip_prefix(b" ")?;
    let end = text.iter().position(|byte| *byte == b' ').unwrap_or(text.len());
    Some(text.split_at(end))
}

/// Digits, or the dash that stands for none.
fn is_number(word: &[u8]) -> bool {
    word == b"-" || !word.is_empty() && word.iter().all(u8::is_ascii_digit)
}

fn seconds(time: &[u8]) -> Result<u64, Fault> {
    let parsed = BrokenDownTime::parse("%d/%b/%Y:%H:%M:%S %z", time).and_then(|time| time.to_timestamp());
    let seconds = parsed.map_err(|_| Fault::Time)?.as_second();
    // The scripts read time 0 as their server's own.
    if !(1..LATEST).contains(&seconds) {
        return Err(Fault::Range);
    }
    u64::try_from(seconds).map_err(|_| Fault::Range)
}

fn path(request: &[u8]) -> &[u8] {
    let mut words = request.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
    let target = words.nth(1).unwrap_or(b"-");
    let end = target.iter().position(|byte| *byte == b'?').unwrap_or(target.len());
    // A target such as `?x` has no path at all.
    if end == 0 { b"-" } else { &target[..end] }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMON: &str = r#"10.0.0.1 - - [17/May/2015:10:05:03 +0000] "GET /a?b=c HTTP/1.1" 200 203023"#;

    fn fault(line: &str) -> Fault {
        parse(line.as_bytes()).expect_err(line)
    }

    #[test]
    fn both_formats_are_read() {
        let wanted = Line { seconds: 1_431_857_103, host: b"10.0.0.1", path: b"/a" };
        let combined = [r#" "-" "curl""#, r#" "\"" "a \\\" b""#, r#" "-" "-" "10.1.1.1" 0.005"#];
        assert_eq!(parse(COMMON.as_bytes()).as_ref(), Ok(&wanted));
        for rest in combined {
            assert_eq!(parse(format!("{COMMON}{rest}").as_bytes()).as_ref(), Ok(&wanted), "{rest}");
        }
    }

    #[test]
    fn fields_may_be_odd() {
        let odd = |line: &'static str| parse(line.as_bytes()).expect(line);
        assert_eq!(odd(r#"::1 - a b c [01/Jan/1970:02:00:01 +0200] "-" 408 -"#).path, b"-");
        assert_eq!(odd(r#"h - - [01/Jan/1970:02:00:01 +0200] "\x16\x03" 400 -"#).path, b"-");
        assert_eq!(odd(r#"h - - [01/Jan/1970:02:00:01 +0200] "GET /\"x\" HTTP/1.1" 400 -"#).path, br#"/\"x\""#);
        assert_eq!(odd(r#"h - - [01/Jan/1970:02:00:01 +0200] "GET  /x" 400 -"#).seconds, 1);
    }

    #[test]
    fn other_lines_are_not() {
        for line in ["", " ", "x", "- - -", r#"{"time": 1}"#, &COMMON[1..9], &COMMON[..COMMON.len() - 7]] {
            assert_eq!(fault(line), Fault::Format, "{line:?}");
        }
        for end in [" ", " x", r#" "a""#, r#" "a" "b"#, r#" "a" "b"c"#] {
            assert_eq!(fault(&format!("{COMMON}{end}")), Fault::Format, "{end:?}");
        }
        assert_eq!(fault(&COMMON.replace("17/May", "31/Jun")), Fault::Time);
        assert_eq!(fault(&COMMON.replace(" +0000", "")), Fault::Time);
        assert_eq!(fault(&COMMON.replace("2015", "1969")), Fault::Range);
        assert_eq!(fault(&COMMON.replace("2015", "2150")), Fault::Range);
    }
}
