//! `grifo replay`: what it counts, on which store it does not matter, and what it leaves behind.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Stdio;
use std::thread::sleep;
use std::time::{Duration, Instant};

use grifo_tests::Server;
use serde_json::{Value, json};

use super::{LogFile, code, command, interrupt, parsed, run, text};

const RULES: [&str; 6] = [
    "10/min burst 5",
    "sliding-window 10/min",
    "sliding-window-counter 10/min",
    "fixed-window 10/min",
    "7/h burst 3",
    "5/10s + 30/min",
];

impl LogFile {
    /// Replays it and gives what was found, without the name of the store.
    fn replay(&self, options: &[&str]) -> Value {
        replay(&self.path("access.log"), options)
    }
}

fn replay(log: &str, options: &[&str]) -> Value {
    let output = run(&[&["replay", log, "--json"], options].concat());
    assert_eq!(code(&output), 0, "{}", text(&output.stderr));
    let mut found = parsed(&output);
    found.as_object_mut().expect("an object").remove("store").expect("the store is named");
    found
}

/// A line in Common Log Format, some seconds into a day.
fn line(host: &str, second: u64, target: &str) -> String {
    let (hours, minutes, seconds) = (second / 3600, second / 60 % 60, second % 60);
    let time = format!("17/May/2015:{hours:02}:{minutes:02}:{seconds:02} +0000");
    format!("{host} - - [{time}] \"GET {target} HTTP/1.1\" 200 1\n")
}

/// Requests of a few busy hosts and many others, in no order, from a fixed sequence of numbers that look random.
fn synthetic(lines: u64) -> String {
    let mut state = 42_u64;
    let mut next = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut request = |_| {
        let host = if next(2) == 0 { next(5) } else { next(200) };
        line(&format!("10.0.0.{host}"), next(900), &format!("/{}", next(9)))
    };
    (0..lines).map(&mut request).collect()
}

/// With `2/min`, that is two at once and another every 30 s, `a` is denied its third request of 10:00:00 and its second of
/// 10:00:30; were the log judged in the order of its lines, it would be others.
pub(crate) fn small_log() -> String {
    const TEN: u64 = 36_000;
    let good = |host, second| line(host, TEN + second, "/x?y");
    let combined = good("b", 0).trim_end().to_owned() + " \"http://r/\" \"agent \\\" 1.0\"\n";
    let lines = [
        good("a", 30),
        "not a line\n".to_owned(),
        good("a", 30),
        good("a", 0),
        combined,
        good("a", 0).replace("17/May", "32/May"),
        good("a", 0).replace('\n', "\r\n"),
        good("a", 0).replace("10:00:00 +0000", "12:00:00 +0200"),
        good("c", 0).replace("2015", "1969"),
        format!("{}\n", "x".repeat(70_000)),
    ];
    lines.concat()
}

#[test]
fn replay_agrees_with_a_count_by_hand() {
    let found = LogFile::new(small_log()).replay(&["--limit", "2/min", "--limit", "1/s + 3/h"]);
    assert_eq!((&found["lines"], &found["bad_lines"]), (&10.into(), &4.into()));
    let reasons = found["bad_reasons"].as_array().expect("a list");
    let first: Vec<_> = reasons.iter().map(|reason| reason["first_line"].as_u64().expect("a number")).collect();
    assert_eq!(first, [2, 6, 9, 10]);
    assert_eq!(found["first"], "2015-05-17T10:00:00Z");
    assert_eq!(found["last"], "2015-05-17T10:00:30Z");

    let limit = &found["limits"][0];
    assert_eq!(limit["limit"], "2/min");
    let numbers = ["requests", "allowed", "denied", "distinct_keys", "keys_ever_denied"];
    assert_eq!(numbers.map(|name| limit[name].as_u64().expect(name)), [6, 4, 2, 2, 1]);
    assert_eq!(limit["most_denied"], json!([{ "key": "a", "denied": 2, "requests": 5 }]));
    let timeline = &limit["timeline"];
    assert_eq!((&timeline["start"], &timeline["step"]), (&"2015-05-17T10:00:00Z".into(), &1.into()));
    let steps = |name: &str| -> Vec<u64> { serde_json::from_value(timeline[name].clone()).expect("numbers") };
    assert_eq!((steps("allowed").len(), steps("allowed")[0], steps("allowed")[30]), (31, 3, 1));
    assert_eq!((steps("denied").len(), steps("denied")[0], steps("denied")[30]), (31, 1, 1));

    let both = &found["limits"][1];
    assert_eq!(numbers.map(|name| both[name].as_u64().expect(name)), [6, 3, 3, 2, 1]);
}

#[test]
fn replay_tells_people_the_same() {
    let log = LogFile::new(small_log());
    let output = run(&["replay", &log.path("access.log"), "--limit", "2/min"]);
    let printed = text(&output.stdout);
    let rows: Vec<String> = printed.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    let wanted = [
        "10 lines, 4 bad; 2 keys (ip); decided by memory",
        "2015-05-17 10:00:00 to 2015-05-17 10:00:30 UTC",
        "left out: 1 neither in Common nor in Combined Log Format; the first is line 2",
        "left out: 1 longer than 64 KiB; the first is line 10",
        "2/min",
        "requests 6",
        "allowed 4 66.67 %",
        "denied 2 33.33 %",
        "distinct keys 2",
        "keys ever denied 1 50.00 %",
        "2 5 a",
    ];
    for wanted in wanted {
        assert!(rows.iter().any(|row| row.starts_with(wanted)), "{wanted:?} is missing:\n{printed}");
    }
    assert!(!printed.contains('\u{1b}') && output.stderr.is_empty(), "only a terminal is coloured: {output:?}");
}

#[test]
fn replay_reads_stdin_and_takes_other_keys() {
    let content = line("a", 0, "/x?1") + &line("a", 0, "/x?2") + &line("b", 0, "/x") + &line("b", 0, "/y");
    for (key, distinct, denied) in [("ip", 2, 2), ("path", 2, 2), ("ip+path", 3, 1)] {
        let arguments = ["replay", "-", "--limit", "1/min", "--key", key, "--json"];
        let mut child = command(&arguments).stdin(Stdio::piped()).spawn().expect("the binary starts");
        child.stdin.take().expect("a pipe").write_all(content.as_bytes()).expect("it reads");
        let found = parsed(&child.wait_with_output().expect("it ends"));
        let limit = &found["limits"][0];
        assert_eq!((&limit["distinct_keys"], &limit["denied"]), (&distinct.into(), &denied.into()), "{key}");
    }
}

#[test]
fn hostile_lines_command_no_terminal() {
    let mut content = line("\u{1b}[2J", 0, "/").repeat(2).into_bytes();
    content.extend(b"\xff\xfe - - [17/May/2015:00:00:00 +0000] \"GET /\x00 HTTP/1.1\" 200 1\n".repeat(2));
    content.extend(line("\u{9b}2J\u{202e}", 0, "/").repeat(2).into_bytes());
    let log = LogFile::new(content);
    for options in [&["--limit", "1/h"][..], &["--limit", "1/h", "--json"]] {
        let printed = text(&run(&[&["replay", &log.path("access.log")], options].concat()).stdout);
        assert!(!printed.contains(['\u{1b}', '\u{9b}', '\u{202e}', '\0']), "{printed:?}");
        assert!(printed.contains("xff"), "{printed}");
    }
}

#[test]
fn a_plot_has_a_panel_for_each_limit() {
    let log = LogFile::new(synthetic(500));
    let plot = log.path("plot.svg");
    log.replay(&["--limit", RULES[0], "--limit", RULES[5], "--plot", &plot]);
    let picture = fs::read_to_string(&plot).expect("the plot is there");
    for wanted in ["<svg", "10/min burst 5", "5/10s + 30/min", "allowed", "denied"] {
        assert!(picture.contains(wanted), "{wanted} is missing");
    }
    let nowhere = run(&["replay", &log.path("access.log"), "--limit", "1/s", "--plot", &log.path("no/plot.svg")]);
    assert_eq!(code(&nowhere), 2);
}

fn empty(server: &Server) {
    // Asking for its rights leaves keys that live for a tenth of a second.
    sleep(Duration::from_millis(200));
    assert_eq!(server.command::<Vec<String>, _>(&["KEYS", "*"]), Vec::<String>::new());
}

/// All rules together give the same numbers in memory and on a server, which is left empty. Returns the numbers.
fn agrees(log: &str, server: &Server) -> Value {
    let rules: Vec<&str> = RULES.iter().flat_map(|rule| ["--limit", rule]).collect();
    let in_memory = replay(log, &rules);
    assert_eq!(in_memory, replay(log, &[&rules[..], &["--store", &server.url()]].concat()));
    empty(server);
    in_memory["limits"].clone()
}

#[test]
fn memory_and_a_server_agree() {
    let server = Server::start_default();
    let log = LogFile::new(synthetic(3000));
    let together = agrees(&log.path("access.log"), &server);
    for (index, rule) in RULES.into_iter().enumerate() {
        let alone = log.replay(&["--limit", rule, "--store", &server.url()]);
        assert_eq!(alone["limits"][0], together[index]);
        assert!(alone["limits"][0]["denied"].as_u64() > Some(0), "{rule} denied nothing");
    }
    empty(&server);
}

#[test]
fn memory_and_a_server_agree_on_a_real_log() {
    let log = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/access.log");
    let Some(path) = log.to_str().filter(|_| log.exists()) else {
        println!("there is no real log beside the repository");
        return;
    };
    let limits = agrees(path, &Server::start_default());
    // Counted by a program of its own, with fractions.
    let denied = RULES.iter().enumerate().map(|(index, _)| limits[index]["denied"].as_u64());
    assert_eq!(denied.collect::<Vec<_>>(), [1395, 1729, 1729, 1729, 4590, 413].map(Some));
}

#[test]
fn an_interrupted_replay_cleans_up() {
    let server = Server::start_default();
    let log = LogFile::new(synthetic(300_000));
    let arguments = ["replay", &log.path("access.log"), "--limit", "1/min + 9/h", "--store", &server.url()];
    let child = command(&arguments).spawn().expect("the binary starts");
    let deadline = Instant::now() + Duration::from_secs(60);
    while server.command::<u64, _>(&["DBSIZE"]) < 100 {
        assert!(Instant::now() < deadline, "no key ever came");
        sleep(Duration::from_millis(5));
    }
    interrupt(&child);
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(code(&output), 130, "{output:?}");
    assert!(output.stdout.is_empty());
    empty(&server);
}

#[test]
fn an_empty_log_is_no_error() {
    let found = LogFile::new("").replay(&["--limit", "1/h"]);
    assert_eq!((&found["lines"], &found["limits"][0]["requests"]), (&0.into(), &0.into()));
}
