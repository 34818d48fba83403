//! Free loopback ports.
//!
//! The ports lie below the range from which systems take the ports of outgoing connections: a client that
//! keeps knocking on the port of a dead server can then neither occupy it nor connect to itself.

use std::collections::HashSet;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::Mutex;
use std::time::{SystemTime, UNIX_EPOCH};

const FIRST: u16 = 12_000;
/// The bus port of a cluster node is its port plus 10,000, and that must stay below 32,768 too.
const COUNT: u16 = 10_000;

static TAKEN: Mutex<Option<HashSet<u16>>> = Mutex::new(None);

/// A loopback port on which nothing listens, and which this process is not given again.
///
/// # Panics
/// When every port of the range is in use.
pub fn free_port() -> u16 {
    let mut guard = TAKEN.lock().unwrap_or_else(|e| e.into_inner());
    let taken = guard.get_or_insert_with(HashSet::new);
    let start = seed();
    for step in 0..COUNT {
        let port = FIRST + start.wrapping_add(step) % COUNT;
        if !taken.contains(&port) && is_free(port) && is_free(port + 10_000) {
            taken.insert(port);
            return port;
        }
    }
    panic!("no free loopback port between {FIRST} and {}", FIRST + COUNT);
}

/// Test processes that run side by side start looking at different places.
fn seed() -> u16 {
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.subsec_nanos());
    let mixed = (nanos ^ std::process::id().rotate_left(16)).wrapping_mul(0x9E37_79B1);
    (mixed >> 16) as u16 % COUNT
}

fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_differ_and_are_free() {
        let ports: HashSet<u16> = (0..50).map(|_| free_port()).collect();
        assert_eq!(ports.len(), 50);
        assert!(ports.iter().all(|p| (FIRST..FIRST + COUNT).contains(p)));
    }
}
