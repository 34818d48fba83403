//! The demo as others start it: it must prove what it says, notice a lie, and leave nothing behind.

use std::net::TcpStream;
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use grifo_tests::Server;

const SOON: Duration = Duration::from_secs(5);

fn demo(url: Option<&str>, seconds: u32) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_demo"));
    match url {
        Some(url) => command.env("GRIFO_URL", url),
        None => command.env_remove("GRIFO_URL"),
    };
    command.args(["--seconds", &seconds.to_string()]).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("the demo starts")
}

fn end(demo: Child) -> (bool, String) {
    let Output { status, stdout, stderr } = demo.wait_with_output().expect("the demo ends");
    (status.success(), String::from_utf8_lossy(&stdout).into_owned() + &String::from_utf8_lossy(&stderr))
}

/// How many are connected to the server, beside the one who asks.
fn connected(server: &Server) -> usize {
    server.command::<String, _>(&["CLIENT", "LIST"]).lines().count() - 1
}

fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + SOON;
    while !condition() {
        assert!(Instant::now() < deadline, "{what}");
        sleep(Duration::from_millis(10));
    }
}

#[test]
fn on_a_named_server_it_is_exact_and_leaves_no_process() {
    let server = Server::start_default();
    let (success, output) = end(demo(Some(&server.url()), 1));
    assert!(success && output.contains("EXACT: "), "{output}");
    assert!(output.contains("4 processes"), "{output}");
    wait_until("somebody is still connected", || connected(&server) == 0);
}

#[test]
fn it_starts_a_server_and_takes_it_down() {
    let (success, output) = end(demo(None, 1));
    assert!(success && output.contains("EXACT: "), "{output}");
    let address = output.split("started on ").nth(1).and_then(|rest| rest.split(".\n").next()).expect("an address");
    wait_until("the server still runs", || TcpStream::connect(address).is_err());
}

#[test]
fn the_embedded_store_is_exact_too() {
    let (success, output) = end(demo(Some("memory://"), 1));
    assert!(success && output.contains("EXACT: ") && output.contains("4 threads"), "{output}");
}

#[test]
fn without_a_server_it_runs_on_the_embedded_store() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_demo"));
    command.env_remove("GRIFO_URL").env("GRIFO_TEST_SERVER", "/nowhere/valkey-server").args(["--seconds", "1"]);
    let output = command.output().expect("the demo ends");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("No server can be had") && text.contains("4 threads"), "{text}");
    assert!(output.status.success(), "{text}");
}

#[test]
fn it_notices_when_more_are_admitted() {
    let server = Server::start_default();
    let demo = demo(Some(&server.url()), 2);
    wait_until("the processes did not connect", || connected(&server) > 4);
    sleep(Duration::from_millis(800));
    server.command::<(), _>(&["FLUSHALL"]);
    let (success, output) = end(demo);
    assert!(!success && output.contains("more than the limit allows"), "{output}");
}

#[test]
fn its_processes_end_with_it() {
    let server = Server::start_default();
    let mut demo = demo(Some(&server.url()), 20);
    wait_until("the processes did not connect", || connected(&server) > 4);
    demo.kill().and_then(|()| demo.wait()).expect("it can be killed");
    wait_until("its processes live on", || connected(&server) == 0);
}

#[test]
fn a_server_that_is_not_there_is_a_failure() {
    let (success, output) = end(demo(Some("redis://:secret@127.0.0.1:1"), 1));
    assert!(!success && output.contains("FAILED: Connection"), "{output}");
    assert!(!output.contains("secret"), "{output}");
}
