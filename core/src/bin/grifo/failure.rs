//! What goes wrong, how it is said, and the exit codes.

use std::io;
use std::process::ExitCode;

use grifo::{Error, ErrorKind};
use serde_json::json;

use crate::terminal::{Paint, print_json};

/// The call was wrong.
const USAGE: u8 = 2;
/// The store could not decide.
const STORE: u8 = 3;
/// As shells report a program that SIGINT ended.
const INTERRUPTED: u8 = 130;

/// Why a command did not do what it was told.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The caller can mend it; the message says how.
    Usage(String),
    Grifo(Error),
    Interrupted,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Grifo(error)
    }
}

/// Only output fails so; what is read says itself what it was.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Usage(format!("the output cannot be written: {error}"))
    }
}

impl Failure {
    /// Says what went wrong: to people on stderr, to machines on stdout.
    pub(crate) fn report(&self, json: bool) -> ExitCode {
        eprintln!("{}: {}", Paint::of_stderr().bad("error"), self.message());
        if json {
            let (kind, code, message) = match self {
                Self::Usage(message) => ("Usage", None, message.as_str()),
                Self::Grifo(error) => (error.kind().name(), Some(error.code()), error.message()),
                Self::Interrupted => ("Interrupted", None, "interrupted"),
            };
            // Where even this cannot be written, stderr has it.
            let _ = print_json(&json!({ "error": { "kind": kind, "code": code, "message": message } }));
        }
        self.exit_code()
    }

    fn message(&self) -> String {
        match self {
            Self::Usage(message) => message.clone(),
            Self::Grifo(error) => error.to_string(),
            Self::Interrupted => "interrupted".to_owned(),
        }
    }

    fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::Usage(_) => USAGE,
            Self::Grifo(error) => match error.kind() {
                ErrorKind::InvalidLimit
                | ErrorKind::InvalidKey
                | ErrorKind::InvalidCost
                | ErrorKind::InvalidOptions => USAGE,
                _ => STORE,
            },
            Self::Interrupted => INTERRUPTED,
        })
    }
}

/// Says why the arguments cannot be understood, or what was asked for with `--help` or `--version`.
pub(crate) fn report_usage(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        return error.print().map_or(ExitCode::from(USAGE), |()| ExitCode::SUCCESS);
    }
    let styled = error.render();
    let text = if Paint::of_stderr().is_on() { styled.ansi().to_string() } else { styled.to_string() };
    // Help shows the form of a URL, and quotes nobody's.
    let is_help = error.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
    eprint!("{}", if is_help { text } else { without_credentials(&text) });
    ExitCode::from(USAGE)
}

/// Hides what stands between `://` and the last `@` of a word, and what follows `pass=`: a URL in the wrong place is quoted.
fn without_credentials(text: &str) -> String {
    text.split_inclusive(char::is_whitespace).map(without_credentials_in_word).collect()
}

fn without_credentials_in_word(word: &str) -> String {
    let mut word = word.to_owned();
    if let Some((scheme, rest)) = word.split_once("://")
        && let Some((_, host)) = rest.rsplit_once('@')
    {
        word = format!("{scheme}://…@{host}");
    }
    match word.split_once("pass=") {
        Some((before, secret)) => {
            let end = secret.find(|c: char| c.is_whitespace() || c == '\u{1b}').unwrap_or(secret.len());
            format!("{before}pass=…{}", &secret[end..])
        }
        None => word,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_hidden_wherever_they_stand() {
        let cases = [
            ("argument 'redis://u:p@w'd@h/1' found\n", "argument 'redis://…@h/1' found\n"),
            ("\u{1b}[33mredis+unix:///s?pass=p'&w&db=1\u{1b}[0m\n", "\u{1b}[33mredis+unix:///s?pass=…\u{1b}[0m\n"),
            ("write to a@b", "write to a@b"),
        ];
        for (text, wanted) in cases {
            assert_eq!(without_credentials(text), wanted);
        }
    }
}
