//! What a server's `INFO commandstats` says about its commands.

use std::collections::HashMap;

use crate::server::Server;

/// The numbers of one command.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CommandStat {
    /// How often it ran, calls from scripts included.
    pub calls: u64,
    /// Microseconds of server time, all calls together.
    pub usec: u64,
    /// Microseconds of server time per call.
    pub usec_per_call: f64,
    /// Calls refused before they ran.
    pub rejected_calls: u64,
    /// Calls that ran and failed.
    pub failed_calls: u64,
}

/// The numbers of all commands since the start of the server or the last reset.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CommandStats(HashMap<String, CommandStat>);

impl CommandStats {
    /// Asks a server.
    ///
    /// # Panics
    /// When it does not answer.
    pub fn read(server: &Server) -> Self {
        Self::parse(&server.command::<String, _>(&["INFO", "commandstats"]))
    }

    /// Sets all numbers of a server back to zero.
    ///
    /// # Panics
    /// When it does not answer.
    pub fn reset(server: &Server) {
        server.command::<(), _>(&["CONFIG", "RESETSTAT"]);
    }

    /// The numbers of one command, such as `evalsha` or `client|setinfo`; zeros when it never ran.
    pub fn of(&self, command: &str) -> CommandStat {
        self.0.get(&command.to_lowercase()).copied().unwrap_or_default()
    }

    /// How often one command ran.
    pub fn calls(&self, command: &str) -> u64 {
        self.of(command).calls
    }

    /// The names of all commands that ran, sorted.
    pub fn names(&self) -> Vec<&str> {
        let mut names: Vec<_> = self.0.keys().map(String::as_str).collect();
        names.sort_unstable();
        names
    }

    fn parse(info: &str) -> Self {
        let lines = info.lines().filter_map(|l| l.strip_prefix("cmdstat_")?.split_once(':'));
        Self(lines.map(|(name, fields)| (name.to_lowercase(), parse_fields(fields))).collect())
    }
}

fn parse_fields(fields: &str) -> CommandStat {
    let mut stat = CommandStat::default();
    for (name, value) in fields.split(',').filter_map(|f| f.split_once('=')) {
        let whole = value.parse().unwrap_or(0);
        match name {
            "calls" => stat.calls = whole,
            "usec" => stat.usec = whole,
            "usec_per_call" => stat.usec_per_call = value.parse().unwrap_or(0.0),
            "rejected_calls" => stat.rejected_calls = whole,
            "failed_calls" => stat.failed_calls = whole,
            _ => {}
        }
    }
    stat
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server_binary::installed;

    #[test]
    fn calls_are_counted_on_every_kind() {
        for binary in installed() {
            let server = Server::start(binary.kind);
            CommandStats::reset(&server);
            for _ in 0..3 {
                server.command::<(), _>(&["EVAL", "return redis.call('INCR', KEYS[1])", "1", "k"]);
            }
            let stats = CommandStats::read(&server);
            assert_eq!((stats.calls("eval"), stats.calls("INCR")), (3, 3), "{}", binary.kind);
            assert!(stats.of("eval").usec_per_call > 0.0);
            assert_eq!(stats.calls("del"), 0);
        }
    }
}
