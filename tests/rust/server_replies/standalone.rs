//! What a single server refuses.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use grifo::{Decision, Error, ErrorKind, Limiter};
use grifo_tests::case::{eventually, stored_keys};
use grifo_tests::{Server, ServerKind};
use redis::Connection;

use crate::scene::{Meeting, Then, limiter, refusal, row};
use crate::table::Row;

const WRITE: &[&str] = &["SET", "grifo:raw", "1"];
const READ: &[&str] = &["GET", "grifo:raw"];
const WRITE_IN_SCRIPT: &[&str] = &["EVAL", "return redis.call('SET', KEYS[1], '1', 'PX', '1000')", "1", "grifo:raw"];
const READ_IN_SCRIPT: &[&str] = &["EVAL", "return redis.call('GET', KEYS[1])", "1", "grifo:raw"];
const NO_SCRIPT: &[&str] = &["EVALSHA", "0000000000000000000000000000000000000000", "0"];
const MANY_WORDS: &[&str] = &["EVAL", "return 1", "0", "1", "2", "3", "4", "5", "6", "7", "8", "9"];
const POOR: &[&str] = &["AUTH", "poor", "pw"];

/// A refusal, and a call that meets it.
struct Case {
    /// Each way in which it is said: the row's name, and the commands whose last is answered so.
    said: &'static [(&'static str, &'static [&'static [&'static str]])],
    /// What brings it about, and what ends it. The connection is one that was there before.
    provoke: fn(&Server, &mut Connection),
    cure: fn(&Server, &mut Connection),
    /// The URL of the client that meets it; none for a connection that was there before.
    url: Option<fn(&Server) -> String>,
    peeks: bool,
    then: Then,
    /// Tokens that are left of ten in the end: one was taken before.
    left: u64,
}

impl Case {
    const PLAIN: Self =
        Self { said: &[], provoke: |_, _| {}, cure: |_, _| {}, url: None, peeks: false, then: Then::Final, left: 9 };
}

fn run(connection: &mut Connection, command: &[&str]) {
    redis::cmd(command[0]).arg(&command[1..]).exec(connection).unwrap_or_else(|error| panic!("{command:?}: {error}"));
}

fn config(connection: &mut Connection, name: &str, value: &str) {
    run(connection, &["CONFIG", "SET", name, value]);
}

fn allow_poor(connection: &mut Connection, rules: &[&str]) {
    run(connection, &[&["ACL", "SETUSER", "poor", "reset", "on", ">pw", "+@all"], rules].concat());
}

/// Waits until another connection is answered so.
fn until_said(server: &Server, command: &[&str], code: &str) {
    let end = std::time::Instant::now() + Duration::from_secs(10);
    let said = || server.try_command::<redis::Value, _>(command).is_err_and(|error| error.code() == Some(code));
    while !said() {
        assert!(std::time::Instant::now() < end, "{code} is not said");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Runs a command that takes long, while others go on.
fn in_background(server: &Server, command: &'static [&'static str]) {
    let mut connection = server.connection().unwrap();
    std::thread::spawn(move || {
        let _ = redis::cmd(command[0]).arg(&command[1..]).exec(&mut connection);
    });
}

fn fail_to_save(server: &Server, connection: &mut Connection) {
    // A folder where the file should be.
    std::fs::create_dir(server.dir().join("dump.rdb")).unwrap();
    config(connection, "save", "3600 1");
    run(connection, &["BGSAVE"]);
    until_said(server, WRITE, "MISCONF");
}

fn load_slowly(server: &Server, connection: &mut Connection) {
    // While it loads it answers once for every two megabytes.
    config(connection, "rdbcompression", "no");
    run(connection, &["EVAL", "for i = 1, 400 do redis.call('SET', 'filler' .. i, string.rep('x', 100000)) end", "0"]);
    config(connection, "key-load-delay", "10000");
    in_background(server, &["DEBUG", "RELOAD"]);
    until_said(server, &["PING"], "LOADING");
}

fn keep_busy(server: &Server, connection: &mut Connection) {
    config(connection, "lua-time-limit", "5");
    in_background(server, &["EVAL", "while true do end", "0"]);
    until_said(server, &["PING"], "BUSY");
}

fn damage(server: &Server, connection: &mut Connection) {
    let key = stored_keys(server).remove(0);
    redis::cmd("DEL").arg(&key).exec(connection).unwrap();
    redis::cmd("RPUSH").arg(&key).arg("x").exec(connection).unwrap();
    run(connection, &["RPUSH", "grifo:raw", "x"]);
}

fn refusals_of_state() -> Vec<Case> {
    vec![
        Case {
            said: &[("script not cached", &[NO_SCRIPT])],
            provoke: |_, connection| run(connection, &["SCRIPT", "FLUSH"]),
            then: Then::Overcome("the script is sent whole"),
            left: 8,
            ..Case::PLAIN
        },
        Case {
            said: &[("loading its data", &[NO_SCRIPT])],
            provoke: load_slowly,
            // Redis 6.2 does not let itself be hurried.
            cure: |_, connection| drop(redis::cmd("CONFIG").arg(&["SET", "key-load-delay", "0"]).exec(connection)),
            then: Then::WaitedOut,
            left: 8,
            ..Case::PLAIN
        },
        Case {
            said: &[("busy with a script", &[NO_SCRIPT])],
            provoke: keep_busy,
            cure: |_, connection| run(connection, &["SCRIPT", "KILL"]),
            ..Case::PLAIN
        },
        Case {
            said: &[("out of memory", &[WRITE]), ("out of memory, in a script", &[WRITE_IN_SCRIPT])],
            provoke: |_, connection| config(connection, "maxmemory", "1"),
            cure: |_, connection| config(connection, "maxmemory", "0"),
            ..Case::PLAIN
        },
        Case {
            said: &[("cannot save to disk", &[WRITE]), ("cannot save to disk, in a script", &[WRITE_IN_SCRIPT])],
            provoke: fail_to_save,
            cure: |_, connection| config(connection, "stop-writes-on-bgsave-error", "no"),
            ..Case::PLAIN
        },
        Case {
            said: &[("replica", &[WRITE]), ("replica, in a script", &[WRITE_IN_SCRIPT])],
            provoke: |_, connection| run(connection, &["REPLICAOF", "127.0.0.1", "1"]),
            cure: |_, connection| run(connection, &["REPLICAOF", "NO", "ONE"]),
            ..Case::PLAIN
        },
        Case {
            said: &[
                ("replica without its master", &[READ]),
                ("replica without its master, in a script", &[READ_IN_SCRIPT]),
            ],
            provoke: |_, connection| {
                config(connection, "replica-serve-stale-data", "no");
                run(connection, &["REPLICAOF", "127.0.0.1", "1"]);
            },
            cure: |_, connection| run(connection, &["REPLICAOF", "NO", "ONE"]),
            ..Case::PLAIN
        },
        Case {
            said: &[("value of another type", &[READ]), ("value of another type, in a script", &[READ_IN_SCRIPT])],
            provoke: damage,
            then: Then::Overcome("the key is healed, as if it were new"),
            ..Case::PLAIN
        },
    ]
}

fn refusals_of_users() -> Vec<Case> {
    vec![
        Case {
            said: &[("no credentials", &[NO_SCRIPT]), ("no credentials, with many words", &[MANY_WORDS])],
            provoke: |_, connection| config(connection, "requirepass", "right"),
            url: Some(Server::url),
            ..Case::PLAIN
        },
        Case {
            said: &[
                ("wrong password", &[&["AUTH", "wrong"]]),
                ("wrong user or password", &[&["AUTH", "nobody", "wrong"]]),
            ],
            provoke: |_, connection| config(connection, "requirepass", "right"),
            url: Some(|server| as_user(server, ":wrong")),
            ..Case::PLAIN
        },
        Case {
            said: &[("password where there is none", &[&["AUTH", "needless"]])],
            url: Some(|server| as_user(server, ":needless")),
            ..Case::PLAIN
        },
        Case {
            said: &[("user may not run a command", &[POOR, NO_SCRIPT])],
            provoke: |_, connection| allow_poor(connection, &["~*", "-evalsha"]),
            url: Some(|server| as_user(server, "poor:pw")),
            ..Case::PLAIN
        },
        Case {
            said: &[
                ("user may not use a key", &[POOR, WRITE]),
                ("user may not use a key of a script", &[POOR, READ_IN_SCRIPT]),
            ],
            provoke: |_, connection| allow_poor(connection, &["~other:*"]),
            url: Some(|server| as_user(server, "poor:pw")),
            ..Case::PLAIN
        },
        Case {
            said: &[("user may not run a command, in a script", &[POOR, WRITE_IN_SCRIPT])],
            provoke: |_, connection| allow_poor(connection, &["~*", "-set"]),
            url: Some(|server| as_user(server, "poor:pw")),
            ..Case::PLAIN
        },
        Case {
            said: &[(
                "user may not use a key, in a script",
                &[POOR, &["EVAL", "return redis.call('GET', 'grifo:raw')", "0"]],
            )],
            provoke: |_, connection| allow_poor(connection, &["~other:*"]),
            then: Then::Unmet,
            ..Case::PLAIN
        },
        Case { said: &[("unknown command", &[&["NOSUCH", "x"]])], then: Then::Unmet, ..Case::PLAIN },
        Case {
            said: &[("no such database", &[&["SELECT", "99"]])],
            url: Some(|server| server.url() + "/99"),
            ..Case::PLAIN
        },
        Case {
            said: &[("no cluster", &[&["CLUSTER", "SLOTS"]])],
            url: Some(|server| server.url().replace("redis://", "redis+cluster://")),
            ..Case::PLAIN
        },
    ]
}

fn too_few_replicas() -> Case {
    Case {
        said: &[("too few replicas", &[WRITE]), ("too few replicas, in a script", &[WRITE_IN_SCRIPT])],
        provoke: |_, connection| config(connection, "min-replicas-to-write", "1"),
        cure: |_, connection| config(connection, "min-replicas-to-write", "0"),
        ..Case::PLAIN
    }
}

/// Redis 6.2 has no read-only forms of EVAL, and its scripts write however few replicas there are.
fn refusals_of_redis_6_2() -> Vec<Case> {
    let too_few = Case { said: &[("too few replicas", &[WRITE])], then: Then::Unmet, ..too_few_replicas() };
    let no_read_only_form = Case {
        said: &[("unknown command EVALSHA_RO", &[&["EVALSHA_RO", "0000000000000000000000000000000000000000", "0"]])],
        peeks: true,
        then: Then::Overcome("EVALSHA is sent in its place"),
        ..Case::PLAIN
    };
    vec![too_few, no_read_only_form]
}

fn as_user(server: &Server, login: &str) -> String {
    server.url().replace("://", &format!("://{login}@"))
}

/// The call that meets the refusal.
async fn call(limiter: Limiter, peeks: bool) -> Result<Decision, Error> {
    if peeks { limiter.peek("k").await } else { limiter.check("k").await }
}

async fn play(server: &Server, case: &Case) -> Vec<Row> {
    let what = format!("{}, {}", server.kind(), case.said[0].0);
    let mut connection = server.connection().unwrap();
    let calm = limiter(&server.url());
    assert_eq!(calm.check("k").await.unwrap().remaining, 9);
    (case.provoke)(server, &mut connection);
    let words: Vec<String> = case.said.iter().map(|(_, commands)| refusal(server.addr(), commands)).collect();
    if case.then == Then::Unmet {
        (case.cure)(server, &mut connection);
    } else {
        let met = case.url.map_or_else(|| calm.clone(), |url| limiter(&url(server)));
        let meeting = Meeting::begin(vec![server], call(met, case.peeks));
        let cure = || (case.cure)(server, &mut connection);
        let _ = meeting.judge(&what, case.then, words.last().unwrap(), cure).await;
    }
    let is_charged_once = async || calm.peek("k").await.is_ok_and(|decision| decision.remaining == case.left);
    eventually(&what, Duration::from_secs(5), is_charged_once).await;
    case.said.iter().zip(&words).map(|((name, _), words)| row(name, words, case.then)).collect()
}

/// The server says so and closes the connection, so its words may be lost on the way.
async fn too_many_clients(server: &Server) -> Row {
    let mut connection = server.connection().unwrap();
    config(&mut connection, "maxclients", "1");
    let words = refusal(server.addr(), &[&["PING"]]);
    let met = limiter(&server.url());
    let error = met.check("k").await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Connection), "{error}");
    config(&mut connection, "maxclients", "1000");
    eventually("room for a client", Duration::from_secs(5), async || met.check("k").await.is_ok()).await;
    row("too many clients", &words, Then::Final)
}

/// An address of this machine that others see too, if it has one. Nothing is sent to find it.
fn outer_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    Some(socket.local_addr().ok()?.ip())
}

/// A server without a password refuses whoever is not on its own machine; Redis 6.2 only if it was not told where to listen.
async fn protected_mode(kind: ServerKind) -> Option<Row> {
    let outer = outer_address().filter(|_| kind != ServerKind::Redis62)?;
    let server = Server::start_with(kind, &["--bind", "127.0.0.1", &outer.to_string()]);
    let address = SocketAddr::new(outer, server.port());
    let words = refusal(address, &[&["PING"]]);
    let call = call(limiter(&format!("redis://{address}")), false);
    let _ = Meeting::begin(vec![&server], call).judge("protected mode", Then::Final, &words, || {}).await;
    Some(row("protected mode", &words, Then::Final))
}

pub(crate) async fn rows(kind: ServerKind) -> Vec<Row> {
    let mut cases = refusals_of_state();
    cases.extend(refusals_of_users());
    cases.extend(match kind {
        ServerKind::Redis62 => refusals_of_redis_6_2(),
        _ => vec![too_few_replicas()],
    });
    let mut rows = Vec::new();
    for case in &cases {
        rows.extend(play(&Server::start(kind), case).await);
    }
    rows.push(too_many_clients(&Server::start(kind)).await);
    rows.extend(protected_mode(kind).await);
    rows
}
