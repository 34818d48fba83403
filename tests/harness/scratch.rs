//! The folder in which all servers of one test process live, and the guard that clears it.
//!
//! A test may panic, abort, keep its server in a static or be killed with SIGKILL, and no server may outlive it.
//! Nothing inside the process can promise that, so a small shell process waits beside it for the end of a pipe
//! whose other end only the test process holds. When the pipe ends it kills every server whose process id it
//! finds in the folder, then removes the folder.
//! (The parent-death signal of Linux would not do: it fires when the *thread* that started the child ends,
//! and every test has a thread of its own.)

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// The name of the file in a server's folder that holds its process id.
pub const PID_FILE: &str = "pid";

/// The second round catches a server that was just being started when the pipe ended.
const GUARD: &str = r#"
read -r _
for round in 1 2; do
    for file in "$1"/*/pid; do
        [ -f "$file" ] && kill -9 "$(cat "$file")" && rm -f "$file"
    done
    [ $round = 1 ] && sleep 0.3
done
rm -rf "$1"
"#;

struct Scratch {
    root: PathBuf,
    /// Held for the open end of its pipe, which closes when this process ends, however it ends.
    _guard: Child,
}

static SCRATCH: OnceLock<Scratch> = OnceLock::new();
static NEXT: AtomicU32 = AtomicU32::new(0);

/// The folder of this test process, made at the first call and removed when the process ends.
///
/// # Panics
/// When the folder or its guard cannot be made.
pub fn root() -> &'static Path {
    &SCRATCH.get_or_init(start_guard).root
}

/// A new, empty folder for one server.
///
/// # Panics
/// When it cannot be made.
pub fn new_dir() -> PathBuf {
    let dir = root().join(NEXT.fetch_add(1, Ordering::Relaxed).to_string());
    std::fs::create_dir(&dir).unwrap_or_else(|e| panic!("cannot make {}: {e}", dir.display()));
    dir
}

fn start_guard() -> Scratch {
    let root = tempfile::Builder::new()
        .prefix("grifo-")
        .tempdir()
        .unwrap_or_else(|e| panic!("cannot make a temporary folder: {e}"))
        .keep();
    // A group of its own, so that Ctrl-C on the tests does not end the guard before it has done its work.
    let guard = Command::new("sh")
        .args(["-c", GUARD, "grifo-guard"])
        .arg(&root)
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .unwrap_or_else(|e| panic!("cannot start the guard of the test servers: {e}"));
    Scratch { root, _guard: guard }
}
