//! The table of errors that all languages share, as the core has it.
//!
//! With `GRIFO_WRITE=1` it is written anew.

use std::path::Path;
use std::{env, fs};

use grifo::ErrorKind;

fn table() -> String {
    let rows = ErrorKind::ALL.map(|kind| format!(r#"{{"kind":"{}","code":{}}}"#, kind.name(), kind.code()));
    format!(
        "{{\"generated_by\":\"tests/rust/errors.rs with GRIFO_WRITE=1; do not edit\",\n\"errors\":[\n{}\n]}}\n",
        rows.join(",\n")
    )
}

#[test]
fn the_table_of_errors_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("vectors/errors.json");
    if env::var_os("GRIFO_WRITE").is_some() {
        fs::write(&path, table()).expect("the vectors can be written");
    }
    let written = fs::read_to_string(&path).expect("the table is there");
    assert_eq!(written, table(), "run GRIFO_WRITE=1 cargo test -p grifo-tests --test errors");
}

#[test]
fn codes_count_up_from_one_and_zero_is_success() {
    let codes: Vec<i32> = ErrorKind::ALL.iter().map(|kind| kind.code()).collect();
    assert_eq!(codes, (1..=14).collect::<Vec<i32>>());
}
