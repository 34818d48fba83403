//! The written table: situations, in each the versions, of each what it says and what that means.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::{env, fs};

use grifo::ErrorKind;
use grifo_tests::ServerKind;
use serde::{Deserialize, Serialize};

/// Tests of several versions write it.
static FILE: Mutex<()> = Mutex::new(());

/// One reply of one version.
pub(crate) struct Row {
    pub(crate) situation: &'static str,
    pub(crate) cell: Cell,
}

/// What a version says, and what the client makes of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Cell {
    said: String,
    kind: String,
    then: String,
}

impl Cell {
    pub(crate) fn new(said: String, kind: ErrorKind, then: &str) -> Self {
        Self { said, kind: kind.name().to_owned(), then: then.to_owned() }
    }
}

#[derive(Default, Deserialize)]
struct Table {
    replies: BTreeMap<String, BTreeMap<String, Cell>>,
}

fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("vectors/server_replies.json")
}

fn read() -> Table {
    let text = fs::read_to_string(path()).unwrap_or_else(|_| r#"{"replies":{}}"#.to_owned());
    serde_json::from_str(&text).expect("the table is readable")
}

/// One line for each cell, so that a change shows what changed.
fn write(table: &Table) {
    let quote = |text: &str| serde_json::to_string(text).expect("text is JSON");
    let situation = |(name, cells): (&String, &BTreeMap<String, Cell>)| {
        let cell = |(version, cell): (&String, &Cell)| {
            format!("  {}: {}", quote(version), serde_json::to_string(cell).expect("a cell is JSON"))
        };
        format!("{}: {{\n{}\n}}", quote(name), cells.iter().map(cell).collect::<Vec<_>>().join(",\n"))
    };
    let rows: Vec<_> = table.replies.iter().map(situation).collect();
    let head = "\"generated_by\": \"tests/rust/server_replies with GRIFO_WRITE=1; do not edit\"";
    fs::write(path(), format!("{{{head},\n\"replies\": {{\n{}\n}}}}\n", rows.join(",\n"))).expect("it can be written");
}

fn write_column(kind: ServerKind, rows: &[Row]) {
    let mut table = read();
    table.replies.values_mut().for_each(|cells| drop(cells.remove(kind.name())));
    for row in rows {
        table.replies.entry(row.situation.to_owned()).or_default().insert(kind.name().to_owned(), row.cell.clone());
    }
    table.replies.retain(|_, cells| !cells.is_empty());
    write(&table);
}

/// Compares what was seen of a version with its column.
pub(crate) fn compare(kind: ServerKind, rows: &[Row]) {
    let _guard = FILE.lock().expect("no test failed while it wrote");
    if env::var_os("GRIFO_WRITE").is_some() {
        write_column(kind, rows);
    }
    let table = read();
    let is_seen = |situation: &String| rows.iter().any(|row| row.situation == situation);
    for (situation, cells) in &table.replies {
        // Not every machine has the address that it takes.
        let may_be_unseen = situation == "protected mode" || !cells.contains_key(kind.name());
        assert!(is_seen(situation) || may_be_unseen, "{kind}: {situation} is written and was not seen");
    }
    for row in rows {
        let written = table.replies.get(row.situation).and_then(|cells| cells.get(kind.name()));
        let hint = "GRIFO_WRITE=1 cargo test -p grifo-tests --test server_replies writes the table";
        assert_eq!(written, Some(&row.cell), "{kind}: {}; {hint}", row.situation);
    }
}
