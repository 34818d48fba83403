//! What a node of a cluster says about the cluster: the text of `CLUSTER NODES`.

use std::ops::RangeInclusive;

/// One line of `CLUSTER NODES`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeView {
    /// The node's id.
    pub id: String,
    /// The port of its clients.
    pub port: u16,
    /// `myself`, `master`, `slave`, `fail?`, `fail`, `handshake`, `noaddr`, `nofailover`, `noflags`.
    pub flags: Vec<String>,
    /// For a replica the id of its master.
    pub master: Option<String>,
    /// The epoch of its configuration: of two nodes that claim a slot, the higher one has it.
    pub epoch: u64,
    /// The slots it owns, in order.
    pub slots: Vec<RangeInclusive<u16>>,
}

impl NodeView {
    /// Reads the whole answer of a node.
    #[must_use]
    pub fn parse_all(text: &str) -> Vec<Self> {
        text.lines().filter_map(Self::parse).collect()
    }

    fn parse(line: &str) -> Option<Self> {
        let mut fields = line.split(' ');
        let id = fields.next()?.to_owned();
        let (address, _) = fields.next()?.split_once('@')?;
        let port = address.rsplit(':').next()?.parse().ok()?;
        let flags = fields.next()?.split(',').map(str::to_owned).collect();
        let master = fields.next().filter(|m| *m != "-").map(str::to_owned);
        let epoch = fields.nth(2)?.parse().ok()?;
        // Slots on the move stand in brackets.
        let slots = fields.skip(1).filter(|s| !s.starts_with('[')).map(parse_range).collect::<Option<_>>()?;
        Some(Self { id, port, flags, master, epoch, slots })
    }

    /// Whether it has a flag.
    #[must_use]
    pub fn has(&self, flag: &str) -> bool {
        self.flags.iter().any(|f| f == flag)
    }

    /// Whether it is a master.
    #[must_use]
    pub fn is_master(&self) -> bool {
        self.has("master")
    }

    /// Whether it owns a slot.
    #[must_use]
    pub fn owns(&self, slot: u16) -> bool {
        self.slots.iter().any(|range| range.contains(&slot))
    }

    /// Whether both say the same about the role and the slots of a node.
    pub(crate) fn agrees_with(&self, other: &Self) -> bool {
        self.is_master() == other.is_master() && self.master == other.master && self.slots == other.slots
    }

    /// Whether the one that says so has doubts about it.
    pub(crate) fn is_in_doubt(&self) -> bool {
        ["fail", "fail?", "handshake", "noaddr"].iter().any(|flag| self.has(flag))
    }
}

fn parse_range(text: &str) -> Option<RangeInclusive<u16>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    Some(first.parse().ok()?..=last.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_every_version_are_read() {
        let text = "aa 127.0.0.1:7001@17001 myself,master - 0 17 3 connected 0-5 9 [7->-bb] [8-<-cc]\n\
                    bb ::1:7002@17002,localhost slave aa 0 17 3 connected\n\
                    cc 127.0.0.1:7003@17003,,tls-port=0,shard-id=f fail? - 1 2 4 disconnected\n";
        let views = NodeView::parse_all(text);
        assert_eq!(views.len(), 3);
        assert!(views[0].is_master() && views[0].has("myself") && views[0].owns(9) && !views[0].owns(7));
        assert_eq!((views[0].port, views[0].epoch, &views[0].slots[..]), (7001, 3, &[0..=5, 9..=9][..]));
        assert_eq!((views[1].port, views[1].master.as_deref(), views[1].is_master()), (7002, Some("aa"), false));
        assert!(views[2].is_in_doubt() && views[2].slots.is_empty());
    }
}
