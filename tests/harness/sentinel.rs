//! A master, its replicas and the sentinels that watch them.

use std::collections::HashMap;

use redis::FromRedisValue;

use crate::server::Server;
use crate::server_binary::{self, ServerKind};
use crate::wait;

/// The name under which the sentinels know the master.
pub const MASTER_NAME: &str = "mymaster";

const SENTINELS: usize = 3;
const REPLICAS: usize = 2;
const QUORUM: usize = 2;

/// What a sentinel tells of a server.
type Fields = HashMap<String, String>;

/// How the servers and their sentinels are made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentinelOptions {
    /// Which server all of them are.
    pub kind: ServerKind,
    /// The password of the master and its replicas.
    pub password: Option<String>,
    /// The password of the sentinels.
    pub sentinel_password: Option<String>,
    /// More options of the master and its replicas, in the form `["--maxmemory", "1mb"]`.
    pub args: Vec<String>,
}

impl SentinelOptions {
    /// No passwords.
    #[must_use]
    pub fn new(kind: ServerKind) -> Self {
        Self { kind, password: None, sentinel_password: None, args: Vec::new() }
    }

    fn start_server(&self) -> Server {
        let mut args = vec!["--repl-diskless-sync", "no"];
        if let Some(password) = &self.password {
            args.extend(["--requirepass", password, "--masterauth", password]);
        }
        args.extend(self.args.iter().map(String::as_str));
        Server::start_with(self.kind, &args)
    }

    fn start_sentinel(&self, master: u16) -> Server {
        let mut args = vec!["--sentinel"];
        if let Some(password) = &self.sentinel_password {
            args.extend(["--requirepass", password]);
        }
        let sentinel = Server::try_start_configured(self.kind, &args, &self.sentinel_lines(master));
        sentinel.unwrap_or_else(|e| panic!("{} as a sentinel: {e}", self.kind))
    }

    /// Every change of roles cuts the connections of the sentinels. What cannot be told to reconnect at once does so
    /// only after a second: a shorter patience would take the new master for dead, and replace it again.
    fn down_after(&self) -> u32 {
        let version = server_binary::find(self.kind).map(|binary| binary.version);
        if version.is_some_and(|version| version.0 >= 7) { 500 } else { 2000 }
    }

    fn sentinel_lines(&self, master: u16) -> String {
        let down_after = self.down_after();
        let mut lines = format!(
            "sentinel monitor {MASTER_NAME} 127.0.0.1 {master} {QUORUM}\n\
             sentinel down-after-milliseconds {MASTER_NAME} {down_after}\n\
             sentinel failover-timeout {MASTER_NAME} 3000\n\
             sentinel parallel-syncs {MASTER_NAME} 2\n"
        );
        if let Some(password) = &self.password {
            lines.push_str(&format!("sentinel auth-pass {MASTER_NAME} {password}\n"));
        }
        if let Some(password) = &self.sentinel_password {
            lines.push_str(&format!("sentinel sentinel-pass {password}\n"));
        }
        lines
    }
}

/// One master, two replicas and three sentinels; dropping them ends all. Servers are named by their number, which
/// never changes: number 0 is the master of the start.
#[derive(Debug)]
pub struct Sentinels {
    servers: Vec<Server>,
    sentinels: Vec<Server>,
    options: SentinelOptions,
}

impl Sentinels {
    /// Starts all and waits until every sentinel knows every server and every other sentinel.
    ///
    /// # Panics
    /// When that takes too long; the message holds the logs.
    #[must_use]
    pub fn start(kind: ServerKind) -> Self {
        Self::start_with(SentinelOptions::new(kind))
    }

    /// Like [`Sentinels::start`], with options.
    ///
    /// # Panics
    /// When that takes too long; the message holds the logs.
    #[must_use]
    pub fn start_with(options: SentinelOptions) -> Self {
        let servers = wait::start_all(1 + REPLICAS, |_| options.start_server());
        let mut all = Self { servers, sentinels: Vec::new(), options };
        all.link_replicas();
        let master = all.servers[0].port();
        all.sentinels = wait::start_all(SENTINELS, |_| all.options.start_sentinel(master));
        all.sentinels.iter().for_each(hasten);
        all.wait_ready();
        all
    }

    fn link_replicas(&self) {
        let port = self.servers[0].port().to_string();
        for replica in &self.servers[1..] {
            replica.command::<(), _>(&["REPLICAOF", "127.0.0.1", &port]);
            // In the file rather than among the options: after a restart the last word of the sentinels counts.
            replica.command::<(), _>(&["CONFIG", "REWRITE"]);
        }
        wait::until("replicas in sync", || self.logs(), || self.check_linked(0));
    }

    /// `redis+sentinel://127.0.0.1:PORT,…/mymaster` without any password.
    #[must_use]
    pub fn url(&self) -> String {
        let hosts: Vec<_> = self.sentinels.iter().map(|s| s.addr().to_string()).collect();
        format!("redis+sentinel://{}/{MASTER_NAME}", hosts.join(","))
    }

    /// The master and its replicas, in the order of their numbers.
    #[must_use]
    pub fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// One server.
    #[must_use]
    pub fn server(&self, index: usize) -> &Server {
        &self.servers[index]
    }

    /// One server, to kill or restart it.
    pub fn server_mut(&mut self, index: usize) -> &mut Server {
        &mut self.servers[index]
    }

    /// The sentinels.
    #[must_use]
    pub fn sentinels(&self) -> &[Server] {
        &self.sentinels
    }

    /// One sentinel, to kill it; [`Sentinels::restart_sentinel`] brings it back.
    pub fn sentinel_mut(&mut self, index: usize) -> &mut Server {
        &mut self.sentinels[index]
    }

    /// Kills a sentinel if it still runs and starts it again; it remembers what it knew.
    ///
    /// # Panics
    /// When it does not start.
    pub fn restart_sentinel(&mut self, index: usize) {
        self.sentinels[index].restart();
        hasten(&self.sentinels[index]);
    }

    /// What all of them logged at last.
    #[must_use]
    pub fn logs(&self) -> String {
        wait::logs(self.servers.iter().chain(&self.sentinels))
    }

    /// The number of the master, of which all sentinels that answer must be of one mind.
    ///
    /// # Panics
    /// When they do not agree in time; the message holds the logs.
    #[must_use]
    pub fn master(&self) -> usize {
        wait::until("one master", || self.logs(), || self.agreed_master())
    }

    fn agreed_master(&self) -> Result<usize, String> {
        let answering = self.sentinels.iter().filter(|s| s.answers());
        let mut ports: Vec<u16> = answering.map(named_master).collect::<Result<_, _>>()?;
        ports.dedup();
        let [port] = ports[..] else { return Err(format!("the sentinels name {ports:?}")) };
        self.servers.iter().position(|s| s.port() == port).ok_or_else(|| format!("no server has port {port}"))
    }

    /// Waits until all sentinels know all that there is and the replicas that answer are in sync.
    ///
    /// # Panics
    /// When that takes too long; the message holds the logs.
    pub fn wait_ready(&self) {
        wait::until("sentinels that are ready", || self.logs(), || self.check_ready());
    }

    fn check_ready(&self) -> Result<(), String> {
        let master = self.agreed_master()?;
        self.check_calm(master)?;
        for sentinel in self.sentinels.iter().filter(|s| s.answers()) {
            let fields = master_fields(sentinel)?;
            let count = |name: &str| fields.get(name).and_then(|n| n.parse::<usize>().ok());
            if count("num-slaves") != Some(REPLICAS) || count("num-other-sentinels") != Some(SENTINELS - 1) {
                return Err(format!("sentinel {} knows {fields:?}", sentinel.port()));
            }
            self.check_replicas(sentinel)?;
        }
        self.check_linked(master)
    }

    /// A failover names its new master before it is over.
    fn check_calm(&self, master: usize) -> Result<(), String> {
        let port = self.server(master).port().to_string();
        for sentinel in self.sentinels.iter().filter(|s| s.answers()) {
            let fields = master_fields(sentinel)?;
            if fields.get("port") != Some(&port) || fields.get("flags").is_none_or(|flags| flags != "master") {
                return Err(format!("sentinel {} says {fields:?}", sentinel.port()));
            }
        }
        Ok(())
    }

    /// A replica that a sentinel doubts would not be chosen.
    fn check_replicas(&self, sentinel: &Server) -> Result<(), String> {
        for fields in ask::<Vec<Fields>>(sentinel, &["SENTINEL", "REPLICAS", MASTER_NAME])? {
            let is_this = |s: &&Server| fields.get("port").is_some_and(|port| *port == s.port().to_string());
            let is_alive = self.servers.iter().find(is_this).is_some_and(Server::answers);
            if is_alive && fields.get("flags").is_none_or(|flags| flags != "slave") {
                return Err(format!("sentinel {} says {fields:?}", sentinel.port()));
            }
        }
        Ok(())
    }

    fn check_linked(&self, master: usize) -> Result<(), String> {
        let port = format!("master_port:{}\r", self.server(master).port());
        for (index, server) in self.servers.iter().enumerate().filter(|(_, s)| s.answers()) {
            let info: String = ask(server, &["INFO", "replication"])?;
            let is_fine = match index == master {
                true => info.contains("role:master") && !info.lines().any(|l| l.contains("state=wait")),
                false => info.contains(&port) && info.contains("master_link_status:up"),
            };
            if !is_fine {
                return Err(format!("server {index}: {info}"));
            }
        }
        Ok(())
    }

    /// Has the sentinels replace the living master, waits until all are ready again and gives the new one.
    ///
    /// # Panics
    /// When that takes too long; the message holds the logs.
    pub fn failover(&self) -> usize {
        let old = self.master();
        wait::until(
            "a failover that begins",
            || self.logs(),
            // Refused while the last one is not quite over, or no replica seems good enough yet.
            || ask::<String>(&self.sentinels[0], &["SENTINEL", "FAILOVER", MASTER_NAME]),
        );
        let new = self.wait_other_master(old);
        self.wait_ready();
        new
    }

    /// Kills the master and gives its number; the sentinels need a few seconds to replace it.
    ///
    /// # Panics
    /// When the sentinels do not agree on the master.
    pub fn kill_master(&mut self) -> usize {
        let master = self.master();
        self.servers[master].kill_hard();
        master
    }

    /// Waits until all sentinels name another master than `old`, and it is one; gives the new one.
    ///
    /// # Panics
    /// When that takes too long; the message holds the logs.
    pub fn wait_other_master(&self, old: usize) -> usize {
        wait::until("another master", || self.logs(), || self.check_other_master(old))
    }

    fn check_other_master(&self, old: usize) -> Result<usize, String> {
        let new = self.agreed_master()?;
        self.check_calm(new)?;
        let info: String = ask(self.server(new), &["INFO", "replication"])?;
        if new != old && info.contains("role:master") { Ok(new) } else { Err(format!("server {new}: {info}")) }
    }
}

/// Without it a sentinel pings and reconnects every second, speaks of itself every two and asks servers every ten.
fn hasten(sentinel: &Server) {
    // A replica is chosen only when it answered a question within five pings; from a dead master's death on they are
    // asked once a second.
    let periods = ["PING-PERIOD", "300", "PUBLISH-PERIOD", "200", "INFO-PERIOD", "500"];
    // Unknown before 7.0, where everything just takes longer.
    let _ = sentinel.try_command::<(), _>(&[&["SENTINEL", "DEBUG"], &periods[..]].concat());
}

fn ask<T: FromRedisValue>(server: &Server, args: &[&str]) -> Result<T, String> {
    // A frozen server would hold a question for ever, so it is not asked.
    if !server.answers() {
        return Err(format!("no answer on {}", server.port()));
    }
    server.try_command(args).map_err(|e| format!("{args:?} on {}: {e}", server.port()))
}

fn named_master(sentinel: &Server) -> Result<u16, String> {
    ask::<(String, u16)>(sentinel, &["SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER_NAME]).map(|(_, port)| port)
}

fn master_fields(sentinel: &Server) -> Result<Fields, String> {
    ask(sentinel, &["SENTINEL", "MASTER", MASTER_NAME])
}

#[cfg(test)]
#[path = "sentinel_tests.rs"]
mod tests;
