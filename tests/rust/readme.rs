//! Every code block of the README, run as it stands. The Rust blocks are run by rustdoc, as part of the crate.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use grifo::testing::ManualClock;
use grifo::{Client, Error, ErrorKind, FailurePolicy};
use grifo_tests::case::stored_key;
use grifo_tests::{Server, ServerKind, server_binary};

const TESTED: [&str; 6] = ["rust", "toml", "sh", "text", "acl", "conf"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ lies in the workspace")
}

fn readme() -> String {
    fs::read_to_string(root().join("README.md")).expect("there is a README")
}

/// The code blocks and their languages, in order.
fn blocks() -> Vec<(String, String)> {
    let mut blocks = Vec::new();
    let mut open: Option<(String, String)> = None;
    for line in readme().lines() {
        match (line.strip_prefix("```"), open.as_mut()) {
            (Some(language), None) => open = Some((language.to_owned(), String::new())),
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (None, Some((_, text))) => *text += &format!("{line}\n"),
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "the last block has no end");
    blocks
}

/// The blocks of one language.
fn blocks_of(language: &str) -> Vec<String> {
    let found: Vec<String> = blocks().into_iter().filter(|(of, _)| of == language).map(|(_, text)| text).collect();
    assert!(!found.is_empty(), "no block of {language}");
    found
}

fn the_block_of(language: &str) -> String {
    let mut found = blocks_of(language);
    assert_eq!(found.len(), 1, "one block of {language}");
    found.swap_remove(0)
}

fn client(url: &str) -> Client {
    let builder = Client::builder(url).timeout(Duration::from_secs(5)).on_failure(FailurePolicy::Raise);
    builder.build().expect("a good URL")
}

fn succeeded(output: &Output, what: &str) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{what}: {}\n{}{}", output.status, text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn every_block_is_of_a_kind_that_is_tested() {
    for (language, text) in blocks() {
        assert!(TESTED.contains(&language.as_str()), "nothing tests a block of {language:?}:\n{text}");
    }
}

#[test]
fn the_quick_start_prints_what_it_says() {
    let app = Path::new(env!("CARGO_TARGET_TMPDIR")).join("hello-grifo");
    fs::create_dir_all(app.join("src")).expect("a folder for the program");
    let core = root().join("core");
    let manifest = the_block_of("toml").replace("../grifo/core", &core.to_string_lossy());
    // It lies below the workspace, but does not belong to it.
    fs::write(app.join("Cargo.toml"), manifest + "\n[workspace]\n").expect("writable");
    fs::write(app.join("src/main.rs"), &blocks_of("rust")[0]).expect("writable");
    fs::copy(root().join("Cargo.lock"), app.join("Cargo.lock")).expect("a lock file");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["run", "--quiet", "--offline", "--target-dir", "target"]).current_dir(&app);
    command.env("CARGO_PROFILE_DEV_DEBUG", "0");
    assert_eq!(succeeded(&command.output().expect("cargo runs"), "the quick start"), the_block_of("text"));
}

/// `make` targets must exist, and are run elsewhere; everything else is run, on a server of its own.
#[test]
fn every_command_works() {
    let server = Server::start_default();
    let makefile = fs::read_to_string(root().join("Makefile")).expect("a Makefile");
    for line in blocks_of("sh").iter().flat_map(|block| block.lines()) {
        if let Some(rest) = line.strip_prefix("make ") {
            let target = rest.split_whitespace().next().unwrap_or_default();
            assert!(makefile.contains(&format!("\n{target}:")), "there is no make {target}");
            continue;
        }
        let command =
            line.replace("redis://localhost", &server.url()).replace("cargo run", "cargo run --quiet --offline");
        let output = Command::new("sh").args(["-c", &command]).current_dir(root()).output().expect("a shell");
        assert!(!succeeded(&output, line).is_empty(), "{line} prints nothing");
    }
}

/// Does everything that grifo can do.
async fn use_all(url: &str) -> Result<(), Error> {
    let client = client(url);
    client.connect(Duration::from_secs(5)).await?;
    for limit in
        ["5/d", "sliding-window 5/d", "sliding-window-counter 5/d", "fixed-window 5/d", "5/d + sliding-window 9/d"]
    {
        let limiter = client.limiter("acl", limit)?;
        assert!(limiter.check_n("key", 2).await?.allowed);
        assert!(limiter.check_n("key", 2).await?.allowed);
        assert!(!limiter.check_n("key", 2).await?.allowed);
        assert_eq!(limiter.refund("key", 1).await?.remaining, 2);
        assert_eq!(limiter.peek("key").await?.remaining, 2);
        assert_eq!(limiter.reset("key").await?.remaining, 5);
    }
    Ok(())
}

fn set_user(server: &Server, words: &[&str]) {
    server.command::<(), _>(&["FLUSHALL"]);
    server.command::<(), _>(&["ACL", "SETUSER", "grifo", "reset"]);
    server.command::<(), _>(words);
}

async fn the_rights_suffice_and_are_needed(kind: ServerKind) {
    if server_binary::find(kind).is_none() {
        println!("{} is not installed here", kind.name());
        return;
    }
    let server = Server::start(kind);
    let block = the_block_of("acl");
    let lacks_read_only_forms = server.version().0 < 7;
    let words: Vec<&str> =
        block.split_whitespace().filter(|word| !(lacks_read_only_forms && word.ends_with("_ro"))).collect();
    let url = server.url().replace("redis://", "redis://grifo:change-me@");
    set_user(&server, &words);
    assert_eq!(use_all(&url).await, Ok(()), "{kind}");
    assert_eq!(client(&url).ping().await.expect("an answer").lacking, [""; 0], "{kind}");
    let with_database = format!("{url}/2");
    assert!(use_all(&with_database).await.is_err(), "{kind}");
    set_user(&server, &[&words, &["+select"][..]].concat());
    assert_eq!(use_all(&with_database).await, Ok(()), "{kind}");
    for right in words.iter().filter(|word| word.starts_with('+')) {
        let without: Vec<&str> = words.iter().copied().filter(|word| word != right).collect();
        set_user(&server, &without);
        let name = right.trim_start_matches('+').replace('|', " ").to_uppercase();
        match client(&url).ping().await {
            Ok(pong) => assert_eq!(pong.lacking, [name], "{kind} without {right}"),
            Err(error) => assert_eq!((error.kind(), *right), (ErrorKind::Permission, "+ping"), "{kind}"),
        }
    }
    set_user(&server, &words.iter().copied().filter(|word| !word.starts_with('~')).collect::<Vec<_>>());
    assert_eq!(use_all(&url).await.map_err(|error| error.kind()), Err(ErrorKind::Permission), "{kind}");
}

#[tokio::test]
async fn the_rights_suffice_and_are_needed_everywhere() {
    for kind in ServerKind::ALL {
        the_rights_suffice_and_are_needed(kind).await;
    }
}

#[tokio::test]
async fn every_server_takes_the_settings() {
    let block = the_block_of("conf");
    for binary in server_binary::installed() {
        let settings: Vec<String> = block.split_whitespace().map(str::to_owned).collect();
        let options: Vec<String> =
            settings.chunks(2).flat_map(|pair| [format!("--{}", pair[0]), pair[1].clone()]).collect();
        let server = Server::start_with(binary.kind, &options.iter().map(String::as_str).collect::<Vec<_>>());
        let policy: Vec<String> = server.command(&["CONFIG", "GET", "maxmemory-policy"]);
        assert_eq!(policy[1], "volatile-ttl", "{}", binary.kind);
        let api = client(&server.url()).limiter("api", "1/h").expect("a good limit");
        assert!(api.check("user:42").await.expect("an answer").allowed);
    }
}

/// The rows of the table that begins with a row like `first`, without head and rule.
fn table(first: &str) -> Vec<Vec<String>> {
    let cells = |line: &str| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect();
    let text = readme();
    let lines = text.lines().skip_while(|line| !line.starts_with(first)).skip(2);
    let rows: Vec<Vec<String>> = lines.take_while(|line| line.starts_with('|')).map(cells).collect();
    assert!(!rows.is_empty(), "no table begins with {first}");
    rows
}

async fn bytes(server: &Server, algorithm: &str, hits: usize) -> f64 {
    server.command::<(), _>(&["FLUSHALL"]);
    let api = client(&server.url()).limiter("api", format!("{algorithm} 5000/h")).expect("a good limit");
    for _ in 0..hits {
        assert!(api.check("user:42").await.expect("an answer").allowed);
    }
    let key = stored_key(server);
    server.command::<f64, _>(&[b"MEMORY".as_slice(), b"USAGE", &key, b"SAMPLES", b"0"])
}

#[tokio::test]
async fn keys_take_as_many_bytes_as_it_says() {
    let columns = [ServerKind::Valkey91, ServerKind::Redis82, ServerKind::Redis70, ServerKind::Redis62];
    if server_binary::is_overridden() {
        return;
    }
    for (column, kind) in columns.into_iter().enumerate().filter(|(_, kind)| server_binary::find(*kind).is_some()) {
        let server = Server::start(kind);
        for row in table("| state |") {
            let (algorithm, hits) = row[0].split_once(", ").unwrap_or((&row[0], "1 hit"));
            let hits = hits.split(' ').next().and_then(|hits| hits.parse().ok()).expect("a number of hits");
            let said: f64 = row[column + 1].parse().expect("a number of bytes");
            let found = bytes(&server, algorithm.trim_matches('`'), hits).await;
            assert!((said - found).abs() <= found * 0.1, "{kind}, {}: {found} bytes, not {said}", row[0]);
        }
    }
}

/// How many single calls pass between two times, asked each millisecond.
async fn admitted(limit: &str, first: u64, last: u64, until: u64) -> u64 {
    let clock = ManualClock::at(Duration::from_millis(first));
    let client = Client::builder("memory://").clock(clock.clone()).build().expect("a good URL");
    let api = client.limiter("api", limit).expect("a good limit");
    let mut count = 0;
    for _ in first..until {
        let now = clock.since_epoch().as_millis();
        while now <= first.into() || now >= last.into() {
            if !api.check("user:42").await.expect("an answer").allowed {
                break;
            }
            count += 1;
        }
        clock.advance(Duration::from_millis(1));
    }
    count
}

/// All that a key can get within one period that begins just before the edge of a window.
#[tokio::test]
async fn the_algorithms_admit_as_many_in_a_period_as_it_says() {
    assert_eq!(admitted("fixed-window 10/s", 999, 1000, 1001).await, 20);
    assert_eq!(admitted("sliding-window 10/s", 999, 1000, 1999).await, 10);
    assert_eq!(admitted("sliding-window-counter 10/s", 999, 1000, 1999).await, 19);
    assert_eq!(admitted("10/s", 0, 1, 1001).await, 20);
    assert_eq!(admitted("10/s burst 2", 0, 1, 1001).await, 12);
}
