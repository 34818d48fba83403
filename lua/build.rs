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
    let mut generated = script("limit", "Judges Limits of every algorithm.", &assemble(&ALGORITHMS));
    for algorithm in ALGORITHMS {
        generated.push_str(&script(algorithm, "Judges Limits of this algorithm.", &assemble(&[algorithm])));
    }
    let alone = [
        ("one_bucket", "Judges one check of one token bucket."),
        ("many_buckets", "Judges checks of many token buckets."),
        ("partitions", "Tells and records how many partitions there are."),
    ];
    for (name, what) in alone {
        let mut source = String::new();
        push_code(&mut source, &read(name));
        generated.push_str(&script(name, what, &source));
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

/// `limit.lua`, with the algorithms where it asks for them.
fn assemble(algorithms: &[&str]) -> String {
    let mut source = String::new();
    for line in read("limit").lines() {
        if line == "-- include algorithms" {
            for algorithm in algorithms {
                push_code(&mut source, &read(algorithm));
            }
        } else {
            push_code(&mut source, line);
        }
    }
    source
}

fn push_code(source: &mut String, text: &str) {
    for line in text.lines().map(str::trim) {
        if !line.is_empty() && !line.starts_with("--") {
            source.push_str(line);
            source.push('\n');
        }
    }
}

fn read(name: &str) -> String {
    let path = format!("{name}.lua");
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}
