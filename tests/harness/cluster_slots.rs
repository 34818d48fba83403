//! Slots on the move: live resharding, slots held between two owners, slots without an owner.

use std::ops::RangeInclusive;

use redis::{Cmd, Connection};

use crate::cluster::Cluster;
use crate::wait;

/// How many keys go with one command.
const BATCH: usize = 100;
/// How many slots are on the move at the same time. Every change is saved, and Valkey also waits for the replicas:
/// one after the other would take long.
const MOVERS: usize = 16;
/// The target refuses or blocks for at most this long, in milliseconds.
const MIGRATE_TIMEOUT: usize = 5000;

/// The commands of resharding, on connections that are opened once.
struct Mover<'a> {
    cluster: &'a Cluster,
    from: (Connection, String),
    to: (Connection, String, u16),
    other_masters: Vec<Connection>,
}

impl<'a> Mover<'a> {
    fn new(cluster: &'a Cluster, from: usize, to: usize) -> Self {
        let open = |i: usize| cluster.node(i).connection().unwrap_or_else(|e| panic!("node {i}: {e}"));
        let others = cluster.masters().into_iter().filter(|i| *i != from && *i != to);
        Self {
            cluster,
            from: (open(from), cluster.id(from)),
            to: (open(to), cluster.id(to), cluster.node(to).port()),
            other_masters: others.map(open).collect(),
        }
    }

    fn begin(&mut self, slot: u16) {
        // The target first: a client that is sent there must be let in.
        self.run(&setslot(slot, "IMPORTING", Some(&self.from.1)), Side::To);
        self.run(&setslot(slot, "MIGRATING", Some(&self.to.1)), Side::From);
    }

    fn run(&mut self, command: &Cmd, side: Side) {
        let connection = match side {
            Side::From => &mut self.from.0,
            Side::To => &mut self.to.0,
        };
        command.exec(connection).unwrap_or_else(|e| panic!("{e}\n{}", self.cluster.logs()));
    }

    fn move_all(&mut self, slot: u16) {
        loop {
            let mut command = redis::cmd("CLUSTER");
            command.arg("GETKEYSINSLOT").arg(slot).arg(BATCH);
            let keys: Vec<Vec<u8>> = command.query(&mut self.from.0).unwrap_or_else(|e| panic!("{e}"));
            if keys.is_empty() {
                return;
            }
            self.move_keys(&keys);
        }
    }

    fn move_keys<K: AsRef<[u8]>>(&mut self, keys: &[K]) {
        let mut command = redis::cmd("MIGRATE");
        command.arg("127.0.0.1").arg(self.to.2).arg("").arg(0).arg(MIGRATE_TIMEOUT);
        if let Some(password) = self.cluster.password() {
            command.arg("AUTH").arg(password);
        }
        command.arg("KEYS");
        for key in keys {
            command.arg(key.as_ref());
        }
        self.run(&command, Side::From);
    }

    fn finish(&mut self, slot: u16) {
        self.move_all(slot);
        let command = setslot(slot, "NODE", Some(&self.to.1));
        // The target first: were the source first, both would send clients to each other.
        self.run(&command, Side::To);
        self.run(&command, Side::From);
        for other in &mut self.other_masters {
            // It may know by now, or be dead: it hears of the change anyway.
            let _ = command.exec(other);
        }
    }
}

#[derive(Clone, Copy)]
enum Side {
    From,
    To,
}

fn setslot(slot: u16, what: &str, node: Option<&str>) -> Cmd {
    let mut command = redis::cmd("CLUSTER");
    command.arg("SETSLOT").arg(slot).arg(what).arg(node);
    command
}

impl Cluster {
    /// Moves slots with their keys from one master to another while both serve, and waits until everyone knows.
    ///
    /// # Panics
    /// When the nodes refuse; the message holds the logs.
    pub fn migrate_slots(&self, from: usize, to: usize, slots: RangeInclusive<u16>) {
        let slots: Vec<_> = slots.collect();
        std::thread::scope(|scope| {
            for part in slots.chunks(slots.len().div_ceil(MOVERS).max(1)) {
                let mut mover = Mover::new(self, from, to);
                scope.spawn(move || {
                    for slot in part {
                        mover.begin(*slot);
                        mover.finish(*slot);
                    }
                });
            }
        });
        self.wait_ready();
    }

    /// The names under which a caller's key is stored, and the master that has them.
    ///
    /// # Panics
    /// When no master has it.
    #[must_use]
    pub fn stored(&self, key: &str) -> (usize, Vec<String>) {
        let on = |master: usize| (master, self.node(master).command(&["KEYS", &format!("*:={key}")]));
        let found = self.masters().into_iter().map(on).find(|(_, names): &(usize, Vec<String>)| !names.is_empty());
        found.unwrap_or_else(|| panic!("{key} is not stored"))
    }

    /// The slot in which a caller's key is stored.
    ///
    /// # Panics
    /// When no master has it.
    #[must_use]
    pub fn slot_of_stored(&self, key: &str) -> u16 {
        self.slot_of_key(&self.stored(key).1[0])
    }

    /// Opens the move of a slot and moves no key: keys that exist are still served by `from`, which sends clients
    /// with others to `to` (`ASK`); commands on both kinds of keys are refused (`TRYAGAIN`).
    ///
    /// # Panics
    /// When the nodes refuse; the message holds the logs.
    pub fn begin_migration(&self, slot: u16, from: usize, to: usize) {
        Mover::new(self, from, to).begin(slot);
    }

    /// Moves some keys of a slot whose move is open.
    ///
    /// # Panics
    /// When the nodes refuse; the message holds the logs.
    pub fn migrate_keys<K: AsRef<[u8]>>(&self, from: usize, to: usize, keys: &[K]) {
        Mover::new(self, from, to).move_keys(keys);
    }

    /// Ends the move of a slot: what is left goes too, `to` owns the slot, and everyone knows.
    ///
    /// # Panics
    /// When the nodes refuse; the message holds the logs.
    pub fn finish_migration(&self, slot: u16, from: usize, to: usize) {
        Mover::new(self, from, to).finish(slot);
        self.wait_ready();
    }

    /// Gives up the move of a slot; keys that were moved stay where they are, out of reach.
    ///
    /// # Panics
    /// When the nodes refuse; the message holds the logs.
    pub fn cancel_migration(&self, slot: u16, from: usize, to: usize) {
        let mut mover = Mover::new(self, from, to);
        mover.run(&setslot(slot, "STABLE", None), Side::From);
        mover.run(&setslot(slot, "STABLE", None), Side::To);
    }

    /// Takes slots from their owner, so that nobody serves them; waits until everyone knows.
    ///
    /// # Panics
    /// When that takes too long; the message holds the logs.
    pub fn del_slots(&self, slots: RangeInclusive<u16>) {
        // A node that hears an older word of the owner takes the slots for owned again, hence the repetition.
        wait::until(
            "slots without owner",
            || self.logs(),
            || {
                let is_left = |i: &usize| self.view_of(*i).iter().any(|v| slots.clone().any(|slot| v.owns(slot)));
                let left: Vec<_> = self.truth().into_keys().filter(is_left).collect();
                for index in &left {
                    self.delete_on(*index, &slots);
                }
                if left.is_empty() { Ok(()) } else { Err(format!("nodes {left:?} know an owner")) }
            },
        );
    }

    fn delete_on(&self, index: usize, slots: &RangeInclusive<u16>) {
        let Ok(mut connection) = self.node(index).connection() else { return };
        for slot in slots.clone() {
            // Refused when it has no owner there, which is what is wanted.
            let _ = redis::cmd("CLUSTER").arg("DELSLOTS").arg(slot).exec(&mut connection);
        }
    }

    /// Gives slots that have no owner to a master, and waits until everyone knows.
    ///
    /// # Panics
    /// When they have an owner, or that takes too long.
    pub fn add_slots(&self, index: usize, slots: RangeInclusive<u16>) {
        let mut command = vec!["CLUSTER".to_owned(), "ADDSLOTS".to_owned()];
        command.extend(slots.map(|slot| slot.to_string()));
        self.node(index).command::<(), _>(&command);
        self.wait_ready();
    }
}
