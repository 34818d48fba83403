//! Whether scripts touch the keys that their callers declared, and no others.

use std::collections::HashSet;

use crate::monitor::MonitorLine;

/// KEYS of a call of a script.
///
/// # Panics
/// When the line is none.
#[must_use]
pub fn keys_of(call: &MonitorLine) -> &[Vec<u8>] {
    assert!(call.name().starts_with("EVAL"), "{call:?}");
    let count = std::str::from_utf8(&call.args[2]).ok().and_then(|count| count.parse::<usize>().ok());
    let count = count.unwrap_or_else(|| panic!("no number of keys: {call:?}"));
    &call.args[3..3 + count]
}

/// The calls of clients among what a server ran.
#[must_use]
pub fn calls(lines: &[MonitorLine]) -> Vec<&MonitorLine> {
    lines.iter().filter(|line| !line.is_from_script()).collect()
}

/// Every key that a script touched is in KEYS, and what is in KEYS is a key of grifo, once.
///
/// # Panics
/// When that does not hold, or something else than scripts was run.
pub fn assert_declared(lines: &[MonitorLine], what: &str) {
    let mut declared: HashSet<&[u8]> = HashSet::new();
    let mut touched: HashSet<&[u8]> = HashSet::new();
    for line in lines {
        if !line.is_from_script() {
            // One whose script is missing touches none, and is sent again.
            assert!(touched == declared || touched.is_empty(), "{what}: before {line:?}");
            declared = keys_of(line).iter().map(Vec::as_slice).collect();
            assert_eq!(declared.len(), keys_of(line).len(), "{what}: a key twice: {line:?}");
            assert!(declared.iter().all(|key| key.starts_with(b"grifo:{")), "{what}: {line:?}");
            touched.clear();
        } else if line.name() != "TIME" {
            assert!(declared.contains(&*line.args[1]), "{what}: undeclared: {line:?}");
            touched.insert(&line.args[1]);
        }
    }
    assert!(touched == declared, "{what}: {declared:?}");
}
