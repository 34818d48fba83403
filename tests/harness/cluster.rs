//! A cluster of real servers on loopback ports.
//!
//! Nodes are named by their number, which never changes: first the masters of the start, then their replicas,
//! then what was added. Every question about roles and slots is put to the nodes that answer at that moment.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use redis::{FromRedisValue, RedisResult};

use crate::cluster_options::ClusterOptions;
use crate::cluster_view::NodeView;
use crate::server::Server;
use crate::server_binary::ServerKind;
use crate::wait;

/// How many slots a cluster has.
pub const SLOTS: u16 = 16_384;

/// A manual failover gives up after five seconds, and may then be asked for again.
const FAILOVER_LIMIT: Duration = Duration::from_secs(6);

/// A running cluster; dropping it ends every node.
#[derive(Debug)]
pub struct Cluster {
    nodes: Vec<Server>,
    is_member: Vec<bool>,
    options: ClusterOptions,
}

impl Cluster {
    /// Starts a cluster and waits until all of it is ready.
    ///
    /// # Panics
    /// When that takes too long; the message holds the logs.
    #[must_use]
    pub fn start(kind: ServerKind, masters: usize, replicas_per_master: usize) -> Self {
        Self::start_with(ClusterOptions::new(kind, masters, replicas_per_master))
    }

    /// Like [`Cluster::start`], with options.
    ///
    /// # Panics
    /// When that takes too long; the message holds the logs.
    #[must_use]
    pub fn start_with(options: ClusterOptions) -> Self {
        let count = options.masters * (1 + options.replicas_per_master);
        let nodes = wait::start_all(count, |_| options.start_node());
        let cluster = Self { nodes, is_member: vec![true; count], options };
        cluster.share_slots();
        cluster.introduce_all();
        for replica in cluster.options.masters..count {
            cluster.replicate(replica, replica % cluster.options.masters);
        }
        cluster.wait_ready();
        cluster
    }

    fn share_slots(&self) {
        let masters = self.options.masters;
        let bound = |index: usize| index * usize::from(SLOTS) / masters;
        for index in 0..masters {
            // Different from the start, so that no two masters first have to settle whose is higher.
            self.node(index).command::<(), _>(&["CLUSTER", "SET-CONFIG-EPOCH", &(index + 1).to_string()]);
            let mut command = vec!["CLUSTER".to_owned(), "ADDSLOTS".to_owned()];
            command.extend((bound(index)..bound(index + 1)).map(|slot| slot.to_string()));
            self.node(index).command::<(), _>(&command);
        }
    }

    fn introduce_all(&self) {
        for (index, node) in self.nodes.iter().enumerate() {
            for other in &self.nodes[index + 1..] {
                self.meet(node, other);
            }
        }
        wait::until("every node knows every other", || self.logs(), || self.check_acquainted());
    }

    fn meet(&self, node: &Server, other: &Server) {
        node.command::<(), _>(&["CLUSTER", "MEET", self.ip(), &other.port().to_string()]);
    }

    fn check_acquainted(&self) -> Result<(), String> {
        for index in self.members() {
            let known = self.view_of(index).iter().filter(|v| !v.is_in_doubt()).count();
            if known < self.members().count() {
                return Err(format!("node {index} knows only {known}"));
            }
        }
        Ok(())
    }

    fn replicate(&self, replica: usize, master: usize) {
        self.node(replica).command::<(), _>(&["CLUSTER", "REPLICATE", &self.id(master)]);
    }

    fn ip(&self) -> &'static str {
        if self.options.ipv6 { "::1" } else { "127.0.0.1" }
    }

    fn members(&self) -> impl Iterator<Item = usize> {
        (0..self.nodes.len()).filter(|i| self.is_member[*i])
    }

    /// The password of all nodes.
    pub(crate) fn password(&self) -> Option<&str> {
        self.options.password.as_deref()
    }

    /// What the nodes logged at last.
    #[must_use]
    pub fn logs(&self) -> String {
        wait::logs(&self.nodes)
    }

    /// `redis+cluster://127.0.0.1:PORT,127.0.0.1:PORT…` with every member, and `:PASSWORD@` when there is one.
    #[must_use]
    pub fn url(&self) -> String {
        self.seed_url(self.nodes.len())
    }

    /// Like [`Cluster::url`], with the first `count` members only.
    #[must_use]
    pub fn seed_url(&self, count: usize) -> String {
        let host = if self.options.ipv6 { "[::1]" } else { "127.0.0.1" };
        let seeds: Vec<_> = self.members().take(count).map(|i| format!("{host}:{}", self.node(i).port())).collect();
        let login = self.password().map_or_else(String::new, |password| format!(":{password}@"));
        format!("redis+cluster://{login}{}", seeds.join(","))
    }

    /// Every node there was, also those that left.
    #[must_use]
    pub fn nodes(&self) -> &[Server] {
        &self.nodes
    }

    /// One node.
    #[must_use]
    pub fn node(&self, index: usize) -> &Server {
        &self.nodes[index]
    }

    /// One node, to kill or restart it.
    pub fn node_mut(&mut self, index: usize) -> &mut Server {
        &mut self.nodes[index]
    }

    /// The node on a port, as addresses and redirections name it.
    #[must_use]
    pub fn node_on(&self, port: u16) -> Option<usize> {
        self.nodes.iter().position(|node| node.port() == port)
    }

    /// The id of a node.
    ///
    /// # Panics
    /// When it does not answer.
    #[must_use]
    pub fn id(&self, index: usize) -> String {
        self.node(index).command(&["CLUSTER", "MYID"])
    }

    /// What one node says about all nodes; empty when it does not answer.
    #[must_use]
    pub fn view_of(&self, index: usize) -> Vec<NodeView> {
        let text = self.ask::<String>(index, &["CLUSTER", "NODES"]);
        text.map(|text| NodeView::parse_all(&text)).unwrap_or_default()
    }

    /// A frozen node would hold a question for ever, so it is not asked.
    fn ask<T: FromRedisValue>(&self, index: usize, args: &[&str]) -> RedisResult<T> {
        if !self.node(index).answers() {
            return Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into());
        }
        self.node(index).try_command(args)
    }

    /// What every member that answers says about itself.
    #[must_use]
    pub fn truth(&self) -> BTreeMap<usize, NodeView> {
        let own = |i| self.view_of(i).into_iter().find(|v| v.has("myself")).map(|view| (i, view));
        self.members().filter_map(own).collect()
    }

    /// The nodes that are masters now and answer.
    #[must_use]
    pub fn masters(&self) -> Vec<usize> {
        self.truth().into_iter().filter(|(_, v)| v.is_master()).map(|(i, _)| i).collect()
    }

    /// The nodes that are replicas now and answer.
    #[must_use]
    pub fn replicas(&self) -> Vec<usize> {
        self.truth().into_iter().filter(|(_, v)| !v.is_master()).map(|(i, _)| i).collect()
    }

    /// The replicas of one node that answer.
    ///
    /// # Panics
    /// When no node that answers knows the master.
    #[must_use]
    pub fn replicas_of(&self, master: usize) -> Vec<usize> {
        let port = self.node(master).port();
        let truth = self.truth();
        let known = truth.keys().flat_map(|i| self.view_of(*i)).find(|v| v.port == port);
        let id = known.unwrap_or_else(|| panic!("nobody knows node {master}\n{}", self.logs())).id;
        truth.into_iter().filter(|(_, v)| v.master.as_deref() == Some(&id)).map(|(i, _)| i).collect()
    }

    /// The owner of a slot, if it has one that answers.
    #[must_use]
    pub fn master_of_slot(&self, slot: u16) -> Option<usize> {
        let truth = self.truth();
        let owners = truth.iter().filter(|(_, v)| v.is_master() && v.owns(slot));
        // A master that was away too long claims its slots until it hears of its successor.
        owners.max_by_key(|(_, v)| v.epoch).map(|(i, _)| *i)
    }

    /// The slots of a node, as it says itself.
    #[must_use]
    pub fn slots_of(&self, index: usize) -> Vec<RangeInclusive<u16>> {
        self.truth().remove(&index).map(|v| v.slots).unwrap_or_default()
    }

    /// The slot of a key, as the servers count it.
    ///
    /// # Panics
    /// When no node answers.
    #[must_use]
    pub fn slot_of_key(&self, key: impl AsRef<[u8]>) -> u16 {
        let node = self.members().map(|i| self.node(i)).find(|n| n.answers());
        let node = node.unwrap_or_else(|| panic!("no node answers\n{}", self.logs()));
        node.command(&[&b"CLUSTER"[..], b"KEYSLOT", key.as_ref()])
    }

    /// How many keys each master has.
    ///
    /// # Panics
    /// When one stops answering meanwhile.
    #[must_use]
    pub fn dbsize_per_master(&self) -> BTreeMap<usize, u64> {
        self.masters().into_iter().map(|i| (i, self.node(i).command(&["DBSIZE"]))).collect()
    }

    /// Makes every member that answers forget its scripts.
    pub fn flush_scripts(&self) {
        for index in self.truth().into_keys() {
            self.node(index).command::<(), _>(&["SCRIPT", "FLUSH"]);
        }
    }

    /// Waits until all members that answer serve, agree on roles and slots, and have their replicas in sync.
    /// One that was just killed is not missed: see [`Cluster::wait_promoted`].
    ///
    /// # Panics
    /// When that takes too long; the message holds the logs.
    pub fn wait_ready(&self) {
        wait::until("a cluster that is ready", || self.logs(), || self.check_ready());
    }

    fn check_ready(&self) -> Result<(), String> {
        let truth = self.truth();
        for (index, own) in &truth {
            self.check_serves(*index, own)?;
            self.check_agrees(*index, &truth)?;
        }
        if truth.is_empty() { Err("no node answers".into()) } else { Ok(()) }
    }

    fn check_serves(&self, index: usize, own: &NodeView) -> Result<(), String> {
        let ask = |args: &[&str]| self.ask::<String>(index, args).map_err(|e| format!("node {index}: {e}"));
        let info = ask(&["CLUSTER", "INFO"])?;
        if !info.contains("cluster_state:ok") {
            return Err(format!("node {index}: {info}"));
        }
        let replication = ask(&["INFO", "replication"])?;
        let is_linked = own.is_master() || replication.contains("master_link_status:up");
        // A master counts a replica only once it has heard from it.
        let are_online = replication.lines().filter(|l| l.contains("state=")).all(|l| l.contains("state=online"));
        if is_linked && are_online { Ok(()) } else { Err(format!("node {index}: {replication}")) }
    }

    fn check_agrees(&self, index: usize, truth: &BTreeMap<usize, NodeView>) -> Result<(), String> {
        let views = self.view_of(index);
        for (other, own) in truth {
            match views.iter().find(|v| v.id == own.id) {
                Some(view) if !view.is_in_doubt() && view.agrees_with(own) => {}
                view => return Err(format!("node {index} says of node {other} {view:?}, which says {own:?}")),
            }
        }
        Ok(())
    }

    /// Waits until a replica has become a master and everyone that answers knows, as after the death of its master.
    ///
    /// # Panics
    /// When that takes too long; the message holds the logs.
    pub fn wait_promoted(&self, replica: usize) {
        wait::until("a replica that is promoted", || self.logs(), || self.check_promoted(replica));
        self.wait_ready();
    }

    fn check_promoted(&self, replica: usize) -> Result<(), String> {
        match self.truth().remove(&replica) {
            Some(view) if view.is_master() && !view.slots.is_empty() => Ok(()),
            view => Err(format!("node {replica} says {view:?}")),
        }
    }

    /// Has a replica take over from its living master, and waits until everyone knows.
    ///
    /// # Panics
    /// When that fails; the message holds the logs.
    pub fn failover(&self, replica: usize) {
        for _ in 0..3 {
            self.node(replica).command::<(), _>(&["CLUSTER", "FAILOVER"]);
            if wait::within(FAILOVER_LIMIT, || self.check_promoted(replica)).is_ok() {
                return self.wait_ready();
            }
        }
        panic!("node {replica} was not promoted\n{}", self.logs());
    }

    /// Starts a node without slots, lets it join and gives its number.
    ///
    /// # Panics
    /// When that takes too long; the message holds the logs.
    pub fn add_node(&mut self) -> usize {
        let server = self.options.start_node();
        for index in self.truth().into_keys() {
            self.meet(self.node(index), &server);
        }
        self.nodes.push(server);
        self.is_member.push(true);
        self.wait_ready();
        self.nodes.len() - 1
    }

    /// Like [`Cluster::add_node`], as a replica of a master.
    ///
    /// # Panics
    /// When that takes too long; the message holds the logs.
    pub fn add_replica(&mut self, master: usize) -> usize {
        let index = self.add_node();
        self.replicate(index, master);
        self.wait_ready();
        index
    }

    /// Lets a node leave: everyone forgets it, and it forgets them if it still answers. It stays on its own port.
    ///
    /// # Panics
    /// When it still has slots, or the others do not let it go.
    pub fn forget_node(&mut self, index: usize) {
        assert!(self.slots_of(index).is_empty(), "node {index} still has slots");
        let port = self.node(index).port();
        self.is_member[index] = false;
        for other in self.truth().into_keys() {
            for view in self.view_of(other).iter().filter(|v| v.port == port) {
                self.node(other).command::<(), _>(&["CLUSTER", "FORGET", &view.id]);
            }
        }
        if self.node(index).answers() {
            self.node(index).command::<(), _>(&["CLUSTER", "RESET"]);
        }
        self.wait_ready();
    }

    /// Has a master without replicas and all others forget each other, with slots and all, while it goes on answering clients.
    /// Its slots have no owner among the others; they forbid each other to be met again for a minute.
    ///
    /// # Panics
    /// When they do not let it go; the message holds the logs.
    pub fn cut_off(&mut self, index: usize) {
        self.is_member[index] = false;
        let others: Vec<usize> = self.members().collect();
        let forgets = |who: usize, whom: usize| {
            let id = self.id(whom);
            // Refused where others have told it to forget already.
            let _ = self.node(who).try_command::<(), _>(&["CLUSTER", "FORGET", &id]);
            if self.view_of(who).iter().any(|v| v.id == id) { Err(format!("{who} knows {whom}")) } else { Ok(()) }
        };
        let check = || others.iter().try_for_each(|other| forgets(*other, index).and(forgets(index, *other)));
        wait::until("a node that is cut off", || self.logs(), check);
    }
}

#[cfg(test)]
#[path = "cluster_tests.rs"]
mod tests;
