//! Where the nodes are whose announced addresses do not lead there, as behind NAT or forwarded ports.

use std::collections::HashMap;
use std::net::IpAddr;

use crate::error::{Error, ErrorKind};

const CHARACTERS_OF_NO_HOST: &[char] = &['/', '@', '?', '#', ',', '[', ']', ':', '\\', '"', '{', '}'];

/// From announced addresses to those that are reached.
#[derive(Debug, Default)]
pub(crate) struct AddressMap {
    places: HashMap<(String, u16), (String, u16)>,
    hosts: HashMap<String, String>,
}

impl AddressMap {
    /// # Errors
    /// [`ErrorKind::InvalidOptions`] for an entry that cannot be read, and for two of the same address.
    pub(crate) fn new(entries: &[(String, String)]) -> Result<Self, Error> {
        let mut map = Self::default();
        for (announced, reached) in entries {
            let is_new = match (read(announced)?, read(reached)?) {
                ((host, Some(port)), (to, Some(to_port))) => {
                    map.places.insert((normal(host), port), (to.to_owned(), to_port)).is_none()
                }
                ((host, None), (to, None)) => map.hosts.insert(normal(host), to.to_owned()).is_none(),
                _ => {
                    let message = format!("{announced:?} to {reached:?}: give both a port, or neither");
                    return Err(invalid(&message));
                }
            };
            if !is_new {
                return Err(invalid(&format!("there are two entries for {announced:?}")));
            }
        }
        Ok(map)
    }

    /// Where the node is that is announced there. An entry with a port goes before one without.
    pub(super) fn translate(&self, host: &str, port: u16) -> (String, u16) {
        if self.places.is_empty() && self.hosts.is_empty() {
            return (host.to_owned(), port);
        }
        let announced = (normal(host), port);
        if let Some(reached) = self.places.get(&announced) {
            return reached.clone();
        }
        (self.hosts.get(&announced.0).map_or(host, String::as_str).to_owned(), port)
    }
}

/// One spelling of each name and address.
fn normal(host: &str) -> String {
    host.parse::<IpAddr>().map_or_else(|_| host.to_ascii_lowercase(), |address| address.to_string())
}

/// Reads `host`, `host:port`, `[IPv6]` or `[IPv6]:port`.
fn read(text: &str) -> Result<(&str, Option<u16>), Error> {
    let malformed = || {
        // Who writes a URL here may have written a password too.
        let what = if text.contains('@') { "an entry".to_owned() } else { format!("{text:?}") };
        invalid(&format!("{what} is not of the form host, host:port, [IPv6] or [IPv6]:port"))
    };
    let (host, rest) = match text.strip_prefix('[') {
        Some(rest) => rest.split_once(']').filter(|(host, _)| host.contains(':')).ok_or_else(malformed)?,
        None => text.split_at(text.find(':').unwrap_or(text.len())),
    };
    let is_host = if text.starts_with('[') { host.parse::<IpAddr>().is_ok() } else { is_name(host) };
    let port = match rest.strip_prefix(':') {
        Some(port) => Some(port.parse().ok().filter(|port| *port > 0).ok_or_else(malformed)?),
        None => None,
    };
    if is_host && (rest.is_empty() || port.is_some()) { Ok((host, port)) } else { Err(malformed()) }
}

fn is_name(host: &str) -> bool {
    let is_odd = |c: char| c.is_whitespace() || c.is_control() || CHARACTERS_OF_NO_HOST.contains(&c);
    !host.is_empty() && !host.contains(is_odd)
}

fn invalid(what: &str) -> Error {
    Error::new(ErrorKind::InvalidOptions, format!("address_map: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(entries: &[(&str, &str)]) -> Result<AddressMap, Error> {
        let entries: Vec<_> = entries.iter().map(|(from, to)| ((*from).to_owned(), (*to).to_owned())).collect();
        AddressMap::new(&entries)
    }

    fn reached(map: &AddressMap, host: &str, port: u16) -> String {
        let (host, port) = map.translate(host, port);
        format!("{host} {port}")
    }

    #[test]
    fn an_entry_with_a_port_goes_before_one_without() {
        let map = map(&[("10.0.0.1:6379", "localhost:7001"), ("10.0.0.1", "gate"), ("Node-A.Internal", "203.0.113.7")]);
        let map = map.unwrap();
        assert_eq!(reached(&map, "10.0.0.1", 6379), "localhost 7001");
        assert_eq!(reached(&map, "10.0.0.1", 6380), "gate 6380");
        assert_eq!(reached(&map, "node-a.INTERNAL", 1), "203.0.113.7 1");
        assert_eq!(reached(&map, "Elsewhere", 2), "Elsewhere 2");
        assert_eq!(reached(&AddressMap::default(), "Elsewhere", 2), "Elsewhere 2");
    }

    #[test]
    fn ipv6_stands_in_brackets_and_has_one_meaning_however_written() {
        let map = map(&[("[2001:DB8::1]:6379", "[::1]:7000"), ("[2001:db8:0:0::2]", "[::1]")]).unwrap();
        assert_eq!(reached(&map, "2001:db8:0::1", 6379), "::1 7000");
        assert_eq!(reached(&map, "2001:db8::2", 6379), "::1 6379");
    }

    #[test]
    fn malformed_entries_are_refused() {
        for text in [
            "",
            ":",
            ":1",
            "h:",
            "h:0",
            "h:65536",
            "h:-1",
            "h:x",
            "h:1:2",
            "::1",
            "[::1",
            "[::1]1",
            "[h]:1",
            "[]:1",
            "[1.2.3.4]",
            "h h",
            "redis://h",
            "u@h:1",
            "h/0",
            "a,b",
            "h\n",
            "[::1]]:1",
            " h",
            "[x:y]:1",
        ] {
            for entries in [[(text, "a:1")], [("a:1", text)], [(text, "a")], [("a", text)]] {
                let error = map(&entries).expect_err(text);
                assert_eq!(error.kind(), ErrorKind::InvalidOptions, "{text}");
            }
        }
        for entries in [
            &[("a:1", "b")][..],
            &[("a", "b:1")],
            &[("a", "b"), ("A", "c")],
            &[("a:1", "b:1"), ("a:1", "b:1")],
            &[("[::1]", "b"), ("[0::1]", "b")],
        ] {
            assert!(map(entries).is_err(), "{entries:?}");
        }
    }
}
