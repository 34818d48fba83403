//! How a server is, and what its user may not do.

use std::time::Instant;

use redis::{Cmd, FromRedisValue, Value, cmd};

use super::connection::Link;
use super::node::Node;
use super::reply::Failure;
use super::script;
use crate::error::{Error, ErrorKind};
use crate::key::helper_key;
use crate::store::Pong;

pub(super) async fn ping(node: &Node, prefix: &str) -> Result<Pong, Error> {
    let link = node.link().await?;
    let started = Instant::now();
    link.ask(&cmd("PING")).await.map_err(Failure::into_error)?;
    let round_trip = started.elapsed();
    let (server, version) = identity(&link).await;
    Ok(Pong { server, version, lacking: lacking(&link, prefix).await?, round_trip })
}

/// The commands that scripts run, each on a helper key, so that none leaves a key without a time to live.
fn needed_commands(prefix: &str) -> Vec<Cmd> {
    let key = &helper_key(prefix, "ping");
    let log = &helper_key(prefix, "ping-log");
    let with = |name: &str, key: &str, arguments: &[&str]| {
        let mut command = cmd(name);
        command.arg(key).arg(arguments);
        command
    };
    let no_script = "0000000000000000000000000000000000000000";
    vec![
        cmd("TIME"),
        script::load(&script::JUDGES[0]),
        with("EVALSHA", no_script, &["1", key]),
        with("EVAL_RO", script::JUDGES[0].source, &["0", "0", "peek"]),
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
async fn lacking(link: &Link, prefix: &str) -> Result<Vec<String>, Error> {
    let mut lacking = Vec::new();
    for command in needed_commands(prefix) {
        match link.ask(&command).await.map_err(Failure::into_error) {
            Err(error) if error.kind() == ErrorKind::Permission => {
                let right = if is_about_keys(&error) { format!("~{prefix}:*") } else { name_of(&command) };
                if !lacking.contains(&right) {
                    lacking.push(right);
                }
            }
            Err(error) if matches!(error.kind(), ErrorKind::Timeout | ErrorKind::Connection) => return Err(error),
            // Any other answer shows that the command may be run.
            _ => {}
        }
    }
    Ok(lacking)
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

/// Whether the command may be run, but not on these keys.
fn is_about_keys(error: &Error) -> bool {
    error.message().contains("access a key")
        || error.message().contains("access at least one")
        || error.message().contains("access one of the keys")
}
