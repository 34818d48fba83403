//! How a server is, and what its user may not do.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use redis::{Cmd, FromRedisValue, cmd};

use super::hello::Hello;
use super::link::Link;
use super::node::Node;
use super::reply::Failure;
use super::script;
use crate::error::{Error, ErrorKind};
use crate::key::helper_key;
use crate::store::Pong;

const COVERAGE: &str = "cluster-require-full-coverage";

pub(super) async fn ping(node: &Node, prefix: &str) -> Result<Pong, Error> {
    let link = node.link().await?;
    let started = Instant::now();
    link.ask(&cmd("PING")).await.map_err(Failure::into_error)?;
    let round_trip = started.elapsed();
    let (server, version) = identity(&link).await;
    Ok(Pong { server, version, lacking: lacking(&link, prefix).await?, warnings: Vec::new(), round_trip })
}

/// The answers of all masters in one; none when there is no master.
pub(super) async fn ping_cluster(masters: &[Arc<Node>], prefix: &str) -> Result<Option<Pong>, Error> {
    let mut all: Option<Pong> = None;
    for node in masters {
        let mut pong = ping(node, prefix).await?;
        pong.warnings.extend(coverage_warning(&*node.link().await?).await);
        all = Some(match all {
            Some(others) => worst_of(others, pong),
            None => pong,
        });
    }
    Ok(all)
}

/// The slower answer, with all that either lacks or is warned of.
fn worst_of(one: Pong, other: Pong) -> Pong {
    let (mut worst, better) = if other.round_trip > one.round_trip { (other, one) } else { (one, other) };
    for (all, more) in [(&mut worst.lacking, better.lacking), (&mut worst.warnings, better.warnings)] {
        all.extend(more.into_iter().filter(|text| !all.contains(text)).collect::<Vec<_>>());
    }
    worst
}

/// Whether one dead master would stop the keys of all others too.
async fn coverage_warning(link: &Link) -> Option<String> {
    let mut command = cmd("CONFIG");
    command.arg("GET").arg(COVERAGE);
    let setting =
        link.ask(&command).await.ok().and_then(|value| HashMap::<String, String>::from_redis_value(value).ok());
    match setting.as_ref().and_then(|setting| setting.get(COVERAGE)).map(String::as_str) {
        Some("no") => None,
        Some(_) => Some(format!(
            "{COVERAGE} is on: one slot without a master stops the whole cluster; CONFIG SET {COVERAGE} no keeps the others going"
        )),
        None => Some(format!(
            "whether one slot without a master stops the whole cluster is not known: CONFIG GET {COVERAGE} is refused"
        )),
    }
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
        script::try_out("EVAL"),
        with("EVALSHA", no_script, &["1", key]),
        script::try_out("EVAL_RO"),
        with("EVALSHA_RO", no_script, &["1", key]),
        with("GET", key, &[]),
        with("MGET", key, &[]),
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
    let hello = Hello::ask(link).await.ok();
    let find = |name| hello.as_ref().and_then(|hello| hello.get(name)).unwrap_or_else(|| "unknown".to_owned());
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
