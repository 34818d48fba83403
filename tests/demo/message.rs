//! What the demo and its processes say to each other: a line of JSON each.

use std::io::{BufRead, Write};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::served::Served;
use crate::tally::Count;

/// What a process is told on its standard input. The end of the input ends it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Ask about this key as fast as you can.
    Share(String),
    /// Ask about these keys in turn, which are grouped by the master that holds them.
    Spread(Vec<Vec<String>>),
    /// End what you do.
    Stop,
}

/// What it says on its standard output.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Report {
    /// It waits for an order.
    Idle,
    Shared(Count),
    Spread(Served),
    Trouble(String),
}

pub(crate) fn write(output: &mut impl Write, message: &impl Serialize) -> Result<(), String> {
    let line = serde_json::to_string(message).map_err(|error| error.to_string())?;
    writeln!(output, "{line}").map_err(|error| error.to_string())
}

/// The messages up to the end of the input. One that cannot be read is an error.
pub(crate) fn read<T: DeserializeOwned>(input: impl BufRead) -> impl Iterator<Item = Result<T, String>> {
    input
        .lines()
        .map_while(Result::ok)
        .map(|line| serde_json::from_str(&line).map_err(|error| format!("said {line:?}: {error}")))
}
