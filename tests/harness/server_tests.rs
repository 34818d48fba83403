//! The harness must hold what the suites build on: nothing it starts outlives it, and what it starts works.

use std::env;
use std::net::TcpStream;
use std::process::{Command, Stdio};

use super::*;
use crate::server_binary::installed;

/// Set in the process that is there to be killed.
const VICTIM: &str = "GRIFO_HARNESS_VICTIM";

fn listens(addr: SocketAddr) -> bool {
    TcpStream::connect_timeout(&addr, Duration::from_secs(1)).is_ok()
}

fn eventually(what: &str, check: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !check() {
        assert!(Instant::now() < deadline, "never happened: {what}");
        sleep(Duration::from_millis(10));
    }
}

#[test]
fn every_kind_starts_answers_and_ends() {
    for binary in installed() {
        let server = Server::start(binary.kind);
        let info: String = server.command(&["INFO", "server"]);
        let version = format!("{}.{}.", binary.version.0, binary.version.1);
        assert!(info.contains(&format!("_version:{version}")), "{info}");
        let (addr, dir) = (server.addr(), server.dir().to_path_buf());
        drop(server);
        assert!(!listens(addr) && !dir.exists(), "{}", binary.kind);
    }
}

#[test]
fn it_listens_on_a_unix_socket() {
    for binary in installed() {
        let server = Server::start(binary.kind);
        let client = redis::Client::open(server.unix_url()).unwrap();
        let pong: String = redis::cmd("PING").query(&mut client.get_connection().unwrap()).unwrap();
        assert_eq!(pong, "PONG");
    }
}

#[test]
fn a_restart_keeps_the_port_and_forgets_the_data() {
    let mut server = Server::start_default();
    server.command::<(), _>(&["SET", "k", "v"]);
    let (port, pid) = (server.port(), server.pid());
    server.kill_hard();
    assert!(!listens(server.addr()) && !server.is_running());
    server.restart();
    assert_eq!(server.port(), port);
    assert_ne!(server.pid(), pid);
    assert_eq!(server.command::<Option<String>, _>(&["GET", "k"]), None);
}

#[test]
fn a_frozen_server_answers_again_when_woken() {
    let server = Server::start_default();
    server.stop();
    assert!(!server.answers());
    server.cont();
    eventually("an answer", || server.answers());
}

#[test]
fn a_frozen_server_ends_too() {
    let server = Server::start_default();
    server.stop();
    let (addr, dir) = (server.addr(), server.dir().to_path_buf());
    drop(server);
    assert!(!listens(addr) && !dir.exists());
}

#[test]
fn options_reach_the_server() {
    let mut server = Server::start_with(installed()[0].kind, &["--maxmemory", "2mb", "--requirepass", "secret"]);
    let answer: (String, String) = server.command(&["CONFIG", "GET", "maxmemory"]);
    assert_eq!(answer.1, "2097152");
    server.restart_with(&["--maxmemory", "3mb"]);
    let answer: (String, String) = server.command(&["CONFIG", "GET", "maxmemory"]);
    assert_eq!(answer.1, "3145728");
}

#[test]
fn a_wrong_option_is_reported_with_the_servers_words() {
    let error = Server::try_start_with(installed()[0].kind, &["--no-such-option", "1"]).unwrap_err();
    assert!(error.contains("no-such-option"), "{error}");
}

#[test]
fn cluster_nodes_and_sentinels_start() {
    let kind = installed()[0].kind;
    let node = Server::start_with(kind, &["--cluster-enabled", "yes"]);
    assert!(node.command::<String, _>(&["CLUSTER", "INFO"]).contains("cluster_state"));
    let sentinel = Server::start_with(kind, &["--sentinel"]);
    let port = Server::start(kind).port().to_string();
    sentinel.command::<(), _>(&["SENTINEL", "MONITOR", "main", "127.0.0.1", &port, "1"]);
}

#[test]
fn a_panic_leaves_nothing() {
    let thread = std::thread::spawn(|| {
        let server = Server::start_default();
        std::panic::panic_any((server.addr(), server.dir().to_path_buf()));
    });
    let payload = thread.join().unwrap_err();
    let (addr, dir) = payload.downcast_ref::<(SocketAddr, PathBuf)>().unwrap();
    assert!(!listens(*addr) && !dir.exists());
}

#[test]
fn a_server_outlives_the_thread_that_started_it() {
    let server = std::thread::spawn(Server::start_default).join().unwrap();
    sleep(Duration::from_millis(50));
    assert!(server.answers());
}

/// Not a test of its own: the process that the next tests start and end.
#[test]
fn victim() {
    let Ok(way) = env::var(VICTIM) else { return };
    let server = Server::start_default();
    if way == "frozen" {
        server.stop();
    }
    fs::write(env::var("GRIFO_HARNESS_NOTE").unwrap(), format!("{} {}", server.port(), server.dir().display()))
        .unwrap();
    match way.as_str() {
        "exit" => std::process::exit(0),
        "forget" => std::mem::forget(server),
        _ => sleep(Duration::from_secs(60)),
    }
}

/// Starts the victim, kills it once its server is up, and waits until server and folder are gone.
fn nothing_is_left_of(way: &str) {
    let note = scratch::new_dir().join("note");
    let mut process = Command::new(env::current_exe().unwrap())
        .args(["--exact", "server::tests::victim"])
        .env(VICTIM, way)
        .env("GRIFO_HARNESS_NOTE", &note)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let read = || fs::read_to_string(&note).ok().filter(|t| t.contains(' '));
    eventually("the victim's server", || read().is_some());
    if way == "killed" || way == "frozen" {
        process.kill().unwrap();
    }
    process.wait().unwrap();
    let text = read().unwrap();
    let (port, dir) = text.split_once(' ').unwrap();
    let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, port.parse().unwrap()));
    let root = Path::new(dir).parent().unwrap();
    eventually("the end of server and folder", || !root.exists() && !listens(addr));
}

#[test]
fn a_killed_test_process_leaves_nothing() {
    nothing_is_left_of("killed");
}

#[test]
fn a_killed_test_process_leaves_no_frozen_server() {
    nothing_is_left_of("frozen");
}

#[test]
fn a_test_process_that_exits_with_servers_leaves_nothing() {
    nothing_is_left_of("exit");
    nothing_is_left_of("forget");
}
