//! Finds the hash tags of the partitions: for each of the most partitions there can be, the first tag in counting order
//! whose Redis Cluster slot lies at that partition's place.

use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

const SLOTS: usize = 16_384;
const MOST_PARTITIONS: usize = 4096;
const DIGITS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let spacing = SLOTS / MOST_PARTITIONS;
    let mut tags = vec![None; MOST_PARTITIONS];
    let mut missing = MOST_PARTITIONS;
    for number in 0.. {
        let tag = spell(number);
        let slot = usize::from(crc16(tag.as_bytes())) % SLOTS;
        if slot.is_multiple_of(spacing) && tags[slot / spacing].is_none() {
            tags[slot / spacing] = Some(tag);
            missing -= 1;
            if missing == 0 {
                break;
            }
        }
    }
    let mut table = format!(
        "/// The tag of each partition, when there are {MOST_PARTITIONS}.\nstatic TAGS: [&str; {MOST_PARTITIONS}] = [\n"
    );
    for tag in tags.iter().flatten() {
        writeln!(table, "{tag:?},").expect("writing to a string");
    }
    table.push_str("];\n");
    let target = Path::new(&env::var("OUT_DIR").expect("cargo sets OUT_DIR")).join("tags.rs");
    fs::write(target, table).expect("the output folder is writable");
}

/// A number in base 36.
fn spell(mut number: usize) -> String {
    let mut digits = Vec::new();
    loop {
        digits.insert(0, DIGITS[number % 36]);
        number /= 36;
        if number == 0 {
            return String::from_utf8(digits).expect("digits are ASCII");
        }
    }
}

/// CRC16-XMODEM, by which Redis Cluster maps a tag to a slot.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(
            crc ^ (u16::from(*byte) << 8),
            |crc, _| if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 },
        )
    })
}
