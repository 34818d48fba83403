//! The masters of a cluster and which keys each of them holds, as the servers themselves say.

use grifo::Client;
use redis::{Cmd, Connection, FromRedisValue, Value, cmd};
use tokio::runtime::Runtime;

/// Marks keys, so that the servers can be asked where they are.
const MARKER: &str = "where";
/// So that the marks last until they are removed, or for an hour.
const MARK: &str = "1/h";
const SCHEME: &str = "redis+cluster://";

pub(crate) struct Master {
    pub(crate) port: u16,
    pub(crate) keys: Vec<String>,
    connection: Connection,
}

pub(crate) fn is_cluster(url: &str) -> bool {
    url.starts_with(SCHEME)
}

/// Every master with those of the keys that it holds. All keys of one name live in one place, whatever their limiter.
pub(crate) fn locate(runtime: &Runtime, client: &Client, url: &str, keys: &[String]) -> Result<Vec<Master>, String> {
    let mut masters = masters(url)?;
    let marker = client.limiter(MARKER, MARK).map_err(|error| error.to_string())?;
    let calls = || keys.iter().map(|key| (key.as_str(), 1));
    let _ = runtime.block_on(marker.check_many(calls())).map_err(|error| error.to_string())?;
    for master in &mut masters {
        let marked = marked_keys(&mut master.connection).map_err(|error| format!("which keys are where: {error}"))?;
        master.keys = keys.iter().filter(|key| marked.contains(key)).cloned().collect();
    }
    for key in keys {
        let _ = runtime.block_on(marker.reset(key)).map_err(|error| error.to_string())?;
    }
    Ok(masters)
}

/// A connection to the master that holds a key.
pub(crate) fn connect_to_holder(
    runtime: &Runtime,
    client: &Client,
    url: &str,
    key: &str,
) -> Result<Box<Connection>, String> {
    let masters = locate(runtime, client, url, &[key.to_owned()])?;
    let holder = masters.into_iter().find(|master| !master.keys.is_empty());
    holder.map(|master| Box::new(master.connection)).ok_or_else(|| "no master holds the key".to_owned())
}

pub(crate) fn connect(url: &str) -> Result<Connection, String> {
    let connection = redis::Client::open(url).and_then(|client| client.get_connection());
    connection.map_err(|error| format!("cannot connect to the server: {error}"))
}

fn masters(url: &str) -> Result<Vec<Master>, String> {
    let rest = url.strip_prefix(SCHEME).ok_or("the URL names no cluster")?;
    let (login, seeds) = rest.rsplit_once('@').map_or(("", rest), |(login, seeds)| (login, seeds));
    let at = |place: &str| {
        connect(&if login.is_empty() { format!("redis://{place}") } else { format!("redis://{login}@{place}") })
    };
    let mut outcome = Err("the URL names no server".to_owned());
    for seed in seeds.split(',') {
        outcome = at(seed);
        if outcome.is_ok() {
            break;
        }
    }
    let ranges: Vec<Vec<Value>> =
        cmd("CLUSTER").arg("SLOTS").query(&mut outcome?).map_err(|error| error.to_string())?;
    // A master may have several ranges.
    let mut places: Vec<(String, u16)> = Vec::new();
    for place in ranges.iter().filter_map(|range| place_of(range)) {
        if !places.contains(&place) {
            places.push(place);
        }
    }
    let open = |(host, port): (String, u16)| {
        let host = if host.contains(':') { format!("[{host}]") } else { host };
        Ok(Master { port, keys: Vec::new(), connection: at(&format!("{host}:{port}"))? })
    };
    places.into_iter().map(open).collect()
}

/// The master of a range of slots: its first and last slot come first, then its master, then the replicas.
fn place_of(range: &[Value]) -> Option<(String, u16)> {
    let [_, _, Value::Array(master), ..] = range else { return None };
    let [host, port, ..] = master.as_slice() else { return None };
    Some((String::from_redis_value(host.clone()).ok()?, u16::from_redis_value(port.clone()).ok()?))
}

/// The callers' names of the keys that are marked on a server.
fn marked_keys(connection: &mut Connection) -> redis::RedisResult<Vec<String>> {
    let separator = format!(":{MARKER}:=");
    let mut scan: Cmd = cmd("SCAN");
    scan.cursor_arg(0).arg("MATCH").arg(format!("*{separator}*")).arg("COUNT").arg(1000);
    let stored = scan.iter::<String>(connection)?;
    stored.map(|name| Ok(name?.split_once(&separator).map_or_else(String::new, |(_, key)| key.to_owned()))).collect()
}
