//! The demo as others start it: it must prove what it says, notice a lie, and leave nothing behind.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpStream;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use grifo_tests::server_binary::installed;
use grifo_tests::{Cluster, Server};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

const SOON: Duration = Duration::from_secs(10);

/// Each run keeps few cores busy: one at a time, so that what is seen is the demo and not the other test.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn command(url: Option<&str>, seconds: u32) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_demo"));
    match url {
        Some(url) => command.env("GRIFO_URL", url),
        None => command.env_remove("GRIFO_URL"),
    };
    command.args(["--seconds", &seconds.to_string()]).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn demo(url: Option<&str>, seconds: u32) -> Child {
    command(url, seconds).spawn().expect("the demo starts")
}

/// On a cluster of its own, whose files are in a folder.
fn demo_in(folder: &Path, seconds: u32) -> Child {
    command(None, seconds).env("TMPDIR", folder).spawn().expect("the demo starts")
}

fn end(demo: Child) -> (bool, String) {
    let Output { status, stdout, stderr } = demo.wait_with_output().expect("the demo ends");
    (status.success(), String::from_utf8_lossy(&stdout).into_owned() + &String::from_utf8_lossy(&stderr))
}

/// What it prints up to a line that holds a word.
fn read_until(demo: &mut Child, word: &str) -> String {
    let mut text = String::new();
    let output = demo.stdout.as_mut().expect("it is piped");
    let mut reader = BufReader::with_capacity(1, output);
    while reader.read_line(&mut text).expect("it can be read") > 0 {
        if text.lines().last().is_some_and(|line| line.contains(word)) {
            return text;
        }
    }
    let mut trouble = String::new();
    let _ = demo.stderr.as_mut().map(|errors| errors.read_to_string(&mut trouble));
    panic!("it never said {word:?}: {text}{trouble}");
}

/// The addresses that it names.
fn addresses(output: &str) -> Vec<&str> {
    output.split_whitespace().filter(|word| word.starts_with("127.0.0.1:")).collect()
}

fn wait_until_gone(folder: &Path, servers: &[&str], workers: &[Pid]) {
    for address in servers {
        wait_until("a server still runs", || TcpStream::connect(address).is_err());
    }
    for worker in workers {
        wait_until("a process still runs", || !processes().iter().any(|(pid, _, _)| pid == worker));
    }
    wait_until("its files are still there", || std::fs::read_dir(folder).is_ok_and(|mut files| files.next().is_none()));
}

/// Every process that has not ended: its number, that of its parent, and what it is.
fn processes() -> Vec<(Pid, u32, String)> {
    let output = Command::new("ps").args(["-A", "-o", "pid=,ppid=,stat=,args="]).output().expect("there is a ps");
    let parse = |line: &str| {
        let mut words = line.split_whitespace();
        let mut number = || words.next().and_then(|word| word.parse::<i32>().ok());
        let (pid, parent) = (number().and_then(Pid::from_raw)?, number()?.unsigned_abs());
        let is_over = words.next()?.starts_with('Z');
        (!is_over).then(|| (pid, parent, words.collect::<Vec<_>>().join(" ")))
    };
    String::from_utf8_lossy(&output.stdout).lines().filter_map(parse).collect()
}

/// The processes that the demo started to take part.
fn workers(demo: &Child) -> Vec<Pid> {
    let is_worker = |parent: u32, what: &str| parent == demo.id() && what.ends_with("--worker");
    processes().into_iter().filter(|(_, parent, what)| is_worker(*parent, what)).map(|(pid, ..)| pid).collect()
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
fn it_kills_a_master_of_its_cluster_and_leaves_nothing() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a folder");
    let start = Instant::now();
    let (success, output) = end(demo_in(folder.path(), 1));
    assert!(success && start.elapsed() < Duration::from_secs(60), "{output}");
    let mut rest = output.as_str();
    for next in [
        "4 processes share",
        "EXACT: ",
        " healthy: ",
        " master killed: ",
        " degraded: source open, reason ",
        " replica took over: ",
        " all store again: ",
        " decisions, all about the ",
        "RECOVERED: ",
    ] {
        rest = rest.split_once(next).unwrap_or_else(|| panic!("{next:?} is missing or too early: {output}")).1;
    }
    assert!(!output.contains('\u{1b}'), "colours belong on terminals: {output:?}");
    assert!(output.lines().all(|line| line.chars().count() <= 80), "{output}");
    let servers = addresses(output.split("EXACT: ").next().unwrap_or_default());
    assert_eq!(servers.len(), 6, "{output}");
    wait_until_gone(folder.path(), &servers, &[]);
}

#[test]
fn nothing_outlives_it_however_it_ends() {
    let _alone = alone();
    for signal in [Signal::KILL, Signal::INT] {
        let folder = tempfile::tempdir().expect("a folder");
        let mut demo = demo_in(folder.path(), 1);
        let output = read_until(&mut demo, "master killed: ");
        let workers = workers(&demo);
        assert_eq!(workers.len(), 4, "{output}");
        kill_process(Pid::from_child(&demo), signal).expect("it can be killed");
        demo.wait().expect("it ends");
        wait_until_gone(folder.path(), &addresses(&output), &workers);
    }
}

#[test]
fn a_process_that_dies_is_a_failure() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a folder");
    let mut demo = demo_in(folder.path(), 1);
    let output = read_until(&mut demo, "healthy: ");
    kill_process(workers(&demo)[1], Signal::KILL).expect("it can be killed");
    let (success, rest) = end(demo);
    assert!(!success && rest.contains("FAILED: number 2 of those who take part: "), "{output}{rest}");
    wait_until_gone(folder.path(), &addresses(&output), &[]);
}

#[test]
fn on_a_named_cluster_it_is_exact_and_kills_nobody() {
    let _alone = alone();
    let cluster = Cluster::start(installed()[0].kind, 3, 0);
    let (success, output) = end(demo(Some(&cluster.url()), 1));
    assert!(success && output.contains("EXACT: ") && !output.contains("killed"), "{output}");
    assert_eq!(cluster.masters().len(), 3);
}

#[test]
fn on_a_named_server_it_is_exact_and_leaves_no_process() {
    let _alone = alone();
    let server = Server::start_default();
    let (success, output) = end(demo(Some(&server.url()), 1));
    assert!(success && output.contains("EXACT: "), "{output}");
    assert!(output.contains("4 processes") && !output.contains("killed"), "{output}");
    wait_until("somebody is still connected", || connected(&server) == 0);
}

#[test]
fn the_embedded_store_is_exact_too() {
    let _alone = alone();
    let (success, output) = end(demo(Some("memory://"), 1));
    assert!(success && output.contains("EXACT: ") && output.contains("4 threads"), "{output}");
}

/// What the demo writes on a terminal of so many columns and rows.
fn on_a_terminal(columns: u16, rows: u16, no_colour: &str) -> String {
    let mut terminal = File::from(openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal"));
    grantpt(&terminal).and_then(|()| unlockpt(&terminal)).expect("its other end");
    let other_end = ptsname(&terminal, Vec::new()).expect("its other end has a name").into_string().expect("a path");
    // Not the terminal of this process: its end would end a process that leads a session.
    let no_control = OpenptFlags::NOCTTY.bits().try_into().expect("a flag of open");
    let other_end = File::options().read(true).write(true).custom_flags(no_control).open(other_end);
    let other_end = other_end.expect("its other end");
    tcsetwinsize(&terminal, Winsize { ws_col: columns, ws_row: rows, ws_xpixel: 0, ws_ypixel: 0 }).expect("a size");
    let mut demo = command(Some("memory://"), 1);
    demo.env("NO_COLOR", no_colour).env("TERM", "xterm").stdout(other_end).stderr(Stdio::null());
    let mut child = demo.spawn().expect("the demo starts");
    // It holds the other end, whose last holder ends what is read here.
    drop(demo);
    let mut text = Vec::new();
    let _ = terminal.read_to_end(&mut text);
    assert!(child.wait().is_ok_and(|status| status.success()), "{}", String::from_utf8_lossy(&text));
    String::from_utf8(text).expect("it is text")
}

/// The same without what commands the terminal.
fn visible(text: &str) -> String {
    let mut parts = text.split("\x1b[");
    let first = parts.next().unwrap_or_default().to_owned();
    let after = |part: &str| part.trim_start_matches(|c: char| c.is_ascii_digit()).chars().skip(1).collect::<String>();
    parts.fold(first, |text, part| text + &after(part))
}

#[test]
fn no_line_is_wider_than_the_terminal() {
    let _alone = alone();
    for (columns, rows) in [(80, 24), (60, 20), (40, 5)] {
        let text = on_a_terminal(columns, rows, "1");
        let widest = visible(&text).lines().map(|line| line.trim().chars().count()).max();
        assert!(widest.is_some_and(|widest| widest < columns.into()), "{columns}: {text}");
        let has_block = text.contains("thread  4");
        assert_eq!(has_block, rows > 10, "what is redrawn has its place above the last row: {text}");
        assert!(!text.contains("\x1b[32m"), "NO_COLOR was set: {text}");
    }
    assert!(on_a_terminal(80, 24, "").contains("\x1b[32m"), "a terminal shows colours");
}

#[test]
fn without_a_server_it_runs_on_the_embedded_store() {
    let _alone = alone();
    let demo = command(None, 1).env("GRIFO_TEST_SERVER", "/nowhere/valkey-server").spawn().expect("the demo starts");
    let (success, output) = end(demo);
    assert!(success && output.contains("No server can be had") && output.contains("4 threads"), "{output}");
}

#[test]
fn it_notices_when_more_are_admitted() {
    let _alone = alone();
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
    let _alone = alone();
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
