//! Assembles the scripts from `limit.lua` and the algorithms: one script with every algorithm, and for each algorithm
//! a shorter one that knows no other, since a script defines all its functions anew at every call. Beside them stand the
//! scripts for the commonest calls of all, and the one for the record of partitions.
//! Comments and indentation stay behind.

use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

use sha1::{Digest, Sha1};

const ALGORITHMS: [&str; 4] = ["token_bucket", "fixed_window", "sliding_window", "sliding_window_counter"];

fn main() {
    println!("cargo::rerun-if-changed=.");
    let mut generated = script("limit", "Judges Limits of every algorithm.", &assemble("limit", &ALGORITHMS));
    for algorithm in ALGORITHMS {
        generated.push_str(&script(algorithm, "Judges Limits of this algorithm.", &assemble("limit", &[algorithm])));
    }
    let alone = [
        ("one_bucket", "Judges one check of one token bucket."),
        ("many_buckets", "Judges checks of many token buckets."),
        ("partitions", "Tells and records how many partitions there are."),
    ];
    for (name, what) in alone {
        generated.push_str(&script(name, what, &assemble(name, &[])));
    }
    let target = Path::new(&env::var("OUT_DIR").expect("cargo sets OUT_DIR")).join("scripts.rs");
    fs::write(target, generated).expect("the output folder is writable");
}

/// The Rust constant for one script.
fn script(name: &str, what: &str, source: &str) -> String {
    let mut sha1 = String::new();
    for byte in Sha1::digest(source.as_bytes()) {
        write!(sha1, "{byte:02x}").expect("writing to a string");
    }
    format!(
        "/// {what}\npub const {}: Script = Script {{ name: {name:?}, source: {source:?}, sha1: {sha1:?} }};\n",
        name.to_uppercase()
    )
}

/// A file, with others where it asks for them.
fn assemble(name: &str, algorithms: &[&str]) -> String {
    let mut source = String::new();
    for line in read(name).lines().map(str::trim) {
        match line.strip_prefix("-- include ") {
            Some("algorithms") => algorithms.iter().for_each(|algorithm| source.push_str(&assemble(algorithm, &[]))),
            Some(part) => source.push_str(&assemble(part, &[])),
            None if line.is_empty() || line.starts_with("--") => {}
            None => {
                source.push_str(line);
                source.push('\n');
            }
        }
    }
    source
}

fn read(name: &str) -> String {
    let path = format!("{name}.lua");
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}
