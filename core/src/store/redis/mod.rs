//! Standalone Redis or Valkey.

pub(crate) mod address;
mod connection;
mod reply;
mod script;

use std::time::{Duration, Instant};

use redis::{Cmd, FromRedisValue, Value, cmd};

use self::address::Address;
use self::connection::{Connector, Link};
use self::reply::Failure;
use self::script::{Call, Form};
use super::{Answers, Entry, Operation, Pong, Store};
use crate::error::{Error, ErrorKind};
use crate::key::helper_key;

/// How often a request that surely did not run is sent again, before the deadline may end it.
const ATTEMPTS: usize = 5;
/// The pause before asking again a server that is still loading.
const LOADING_PAUSE: Duration = Duration::from_millis(10);

/// A standalone server.
#[derive(Debug)]
pub(crate) struct RedisStore {
    connector: Connector,
    prefix: String,
    reloads: std::sync::atomic::AtomicU64,
}

impl RedisStore {
    pub(crate) fn new(address: Address, prefix: String, connect_timeout: Duration) -> Self {
        Self { connector: Connector::new(address, connect_timeout), prefix, reloads: 0.into() }
    }

    /// How often a script had to be sent whole, since the server had forgotten it.
    pub(crate) fn reloads(&self) -> u64 {
        self.reloads.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// When the server is next asked, if it is not now.
    pub(crate) fn next_attempt(&self) -> Option<Instant> {
        self.connector.next_attempt()
    }

    /// Sends a call until it ran, or failed in a way that leaves open whether it ran.
    async fn run(&self, call: &Call) -> Result<Answers, Error> {
        let mut last = None;
        for _ in 0..ATTEMPTS {
            let link = self.connector.link().await?;
            match self.send(&link, call).await {
                Ok(value) => return call.parse(value),
                Err(Failure::Final(error)) => return Err(error),
                Err(Failure::Loading(error)) => {
                    tokio::time::sleep(LOADING_PAUSE).await;
                    last = Some(error);
                }
                Err(Failure::ReadOnly(error)) => {
                    if !link.give_up_if_old() {
                        return Err(error);
                    }
                    last = Some(error);
                }
                Err(Failure::Unsent(error) | Failure::NoScript(error) | Failure::NoReadOnlyForm(error)) => {
                    last = Some(error);
                }
            }
        }
        Err(last.unwrap_or_else(|| Error::new(ErrorKind::Unavailable, "the server did not run the script")))
    }

    /// Sends a call once, or twice where the server does not have its script: a script that is not there did not run.
    async fn send(&self, link: &Link, call: &Call) -> Result<Value, Failure> {
        let seen = link.scripts_sent(call.script());
        let read_only = call.is_read_only() && link.has_read_only_forms();
        let form = if read_only { Form::ReadOnlyHash } else { Form::Hash };
        match link.ask(&call.command(form)).await {
            Err(Failure::NoReadOnlyForm(error)) => {
                link.forget_read_only_forms();
                Err(Failure::NoReadOnlyForm(error))
            }
            // Of all who find the script missing one sends it; the others' next try arrives behind it.
            Err(Failure::NoScript(_)) if link.may_send_script(call.script(), seen) => {
                self.reloads.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                link.ask(&call.command(if read_only { Form::ReadOnlySource } else { Form::Source })).await
            }
            outcome => outcome,
        }
    }

    /// The commands that scripts run, each on a helper key, so that none leaves a key without a time to live.
    fn needed_commands(&self) -> Vec<Cmd> {
        let key = &helper_key(&self.prefix, "ping");
        let log = &helper_key(&self.prefix, "ping-log");
        let with = |name: &str, key: &str, arguments: &[&str]| {
            let mut command = cmd(name);
            command.arg(key).arg(arguments);
            command
        };
        let no_script = "0000000000000000000000000000000000000000";
        vec![
            cmd("TIME"),
            with("EVAL", "return 1", &["1", key]),
            with("EVALSHA", no_script, &["1", key]),
            with("EVAL_RO", "return 1", &["1", key]),
            with("EVALSHA_RO", no_script, &["1", key]),
            with("GET", key, &[]),
            with("PTTL", key, &[]),
            with("SET", key, &["1", "PX", "100"]),
            with("ZADD", log, &["XX", "1", "1"]),
            with("PEXPIRE", log, &["100"]),
            with("ZRANGE", log, &["-1", "-1", "WITHSCORES"]),
            with("ZCOUNT", log, &["-inf", "1"]),
            with("ZCARD", log, &[]),
            with("ZREM", log, &["2"]),
            with("ZREMRANGEBYRANK", log, &["0", "-1"]),
            with("UNLINK", key, &[]),
        ]
    }

    /// Names of needed commands that the user may not run.
    async fn lacking(&self, link: &Link) -> Result<Vec<String>, Error> {
        let mut lacking = Vec::new();
        for command in self.needed_commands() {
            match link.ask(&command).await.map_err(Failure::into_error) {
                Err(error) if error.kind() == ErrorKind::Permission => lacking.push(name_of(&command)),
                Err(error) if matches!(error.kind(), ErrorKind::Timeout | ErrorKind::Connection) => return Err(error),
                // Any other answer shows that the command may be run.
                _ => {}
            }
        }
        Ok(lacking)
    }
}

impl Store for RedisStore {
    async fn call(&self, operation: Operation, entries: &[Entry<'_>], now: Option<u64>) -> Result<Answers, Error> {
        self.run(&Call::new(&self.prefix, operation, entries, now)).await
    }

    async fn connect(&self) -> Result<(), Error> {
        let link = self.connector.link().await?;
        for script in script::ALL {
            link.ask(&script::load(&script)).await.map_err(Failure::into_error)?;
        }
        Ok(())
    }

    async fn ping(&self) -> Result<Pong, Error> {
        let link = self.connector.link().await?;
        let started = Instant::now();
        link.ask(&cmd("PING")).await.map_err(Failure::into_error)?;
        let round_trip = started.elapsed();
        let (server, version) = identity(&link).await;
        Ok(Pong { server, version, lacking: self.lacking(&link).await?, round_trip })
    }

    fn close(&self) {
        self.connector.close();
    }
}

/// The name and version of the server, as far as its user may know them.
async fn identity(link: &Link) -> (String, String) {
    let unknown = || "unknown".to_owned();
    let Ok(hello) = link.ask(&cmd("HELLO")).await else { return (unknown(), unknown()) };
    let pairs: Vec<Value> = FromRedisValue::from_redis_value(hello).unwrap_or_default();
    let find = |name: &str| {
        let text = |value: &Value| String::from_redis_value(value.clone()).unwrap_or_default();
        pairs.chunks(2).find(|pair| text(&pair[0]) == name).and_then(|pair| pair.get(1)).map_or_else(unknown, text)
    };
    (find("server"), find("version"))
}

fn name_of(command: &Cmd) -> String {
    match command.args_iter().next() {
        Some(redis::Arg::Simple(name)) => String::from_utf8_lossy(name).into_owned(),
        _ => String::new(),
    }
}
