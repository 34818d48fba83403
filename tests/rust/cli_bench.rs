//! `grifo bench`: what it measures, and what it leaves behind.

use std::thread::sleep;
use std::time::{Duration, Instant};

use grifo_tests::Server;
use grifo_tests::case::{PATIENCE, stored_keys};

use super::{code, command, interrupt, parsed, run, text};

/// Waits until the server is asked.
fn wait_for_keys(server: &Server) {
    let deadline = Instant::now() + PATIENCE;
    while stored_keys(server).is_empty() {
        assert!(Instant::now() < deadline, "no key ever came");
        sleep(Duration::from_millis(5));
    }
}

fn bench<'a>(url: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let usual = [["--callers", "8"], ["--keys", "100"], ["--seconds", "0.3"]];
    let kept = usual.into_iter().filter(|option| !more.contains(&option[0])).flatten();
    ["bench", "--store", url].into_iter().chain(kept).chain(more.iter().copied()).collect()
}

#[test]
fn a_server_is_measured_and_left_as_it_was() {
    let server = Server::start_default();
    let url = server.url();
    assert_eq!(code(&run(&["check", "--store", &url, "--limit", "1/h", "7"])), 0);
    let before = stored_keys(&server);
    let output = run(&bench(&url, &["--limit", "1000000/s", "--json"]));
    let found = parsed(&output);
    assert_eq!(code(&output), 0, "{output:?}");
    let number = |name: &str| found[name].as_f64().unwrap_or_else(|| panic!("no {name} in {found}"));
    assert!(number("decisions") > 100.0 && number("decisions_per_second") > 100.0, "{found}");
    assert_eq!((number("allowed"), number("denied"), number("degraded")), (1.0, 0.0, 0.0));
    let latency = |part: &str| found["latency"][part].as_f64().expect("a latency");
    assert!(0.0 < latency("p50") && latency("p50") <= latency("p99") && latency("p99") <= latency("p99.9"), "{found}");
    assert!(number("seconds") >= 0.3, "{found}");
    assert_eq!(stored_keys(&server), before);
}

#[test]
fn what_is_denied_is_told() {
    let server = Server::start_default();
    let output = run(&bench(&server.url(), &["--limit", "10/h", "--keys", "1", "--json"]));
    let found = parsed(&output);
    let allowed = found["allowed"].as_f64().expect("a share") * found["decisions"].as_f64().expect("a number");
    assert!((allowed - 10.0).abs() < 0.01, "{found}");
}

#[test]
fn the_embedded_store_is_measured_too() {
    let output = run(&bench("memory://", &[]));
    let said = text(&output.stdout);
    assert_eq!(code(&output), 0, "{output:?}");
    assert!(said.starts_with("memory ") && said.contains("a second") && said.contains("degraded   0.0 %"), "{said}");
}

#[test]
fn an_outage_is_told_and_does_not_last_longer_than_the_measurement() {
    let server = Server::start_default();
    let url = server.url();
    let child =
        command(&bench(&url, &["--timeout", "0.1", "--seconds", "2", "--json"])).spawn().expect("the binary starts");
    wait_for_keys(&server);
    server.stop();
    let output = child.wait_with_output().expect("it ends");
    server.cont();
    let found = parsed(&output);
    assert_eq!(code(&output), 0, "{output:?}");
    assert!(found["degraded"].as_f64().expect("a share") > 0.0, "{found}");
    let reasons = found["reasons"].as_object().expect("an object");
    assert!(!reasons.is_empty() && found["allowed"].as_f64().expect("a share") < 1.0, "{found}");
    assert!(text(&output.stderr).contains("left in the store"), "{output:?}");
}

#[test]
fn an_interrupt_ends_it() {
    let server = Server::start_default();
    let url = server.url();
    let child = command(&["bench", "--store", &url, "--seconds", "600"]).spawn().expect("the binary starts");
    wait_for_keys(&server);
    interrupt(&child);
    assert_eq!(code(&child.wait_with_output().expect("it ends")), 130);
    assert!(stored_keys(&server).is_empty());
}

#[test]
fn wrong_calls_and_absent_stores_are_errors() {
    for wrong in [["--seconds", "0"], ["--seconds", "9999"], ["--callers", "0"], ["--keys", "0"], ["--limit", "0/s"]] {
        let output = run(&["bench", "--store", "memory://", wrong[0], wrong[1]]);
        assert_eq!(code(&output), 2, "{wrong:?}: {output:?}");
    }
    let output = run(&["bench", "--url", "redis://127.0.0.1:1", "--json"]);
    assert_eq!((code(&output), &parsed(&output)["error"]["kind"]), (3, &"Connection".into()));
}
