//! The command line, run as its users run it: arguments in, output and exit code out.

#[path = "cli_bench.rs"]
mod bench;
#[path = "cli_replay.rs"]
mod replay;

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;

use grifo_tests::cluster_case::default_kind;
use grifo_tests::{Cluster, ClusterOptions, Server, TlsFront};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use self::replay::small_log;

const SECRET: &str = "S3cr3t";
/// The binary, built once from the same parts as this test.
fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("a folder inside the target folder");
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut build = Command::new(cargo);
        build.args([
            "build",
            "--workspace",
            "--exclude",
            "grifo-bench",
            "--all-features",
            "--bin",
            "grifo",
            "--locked",
        ]);
        build.args(["--message-format", "json-render-diagnostics", "--target-dir"]).arg(target);
        if !cfg!(debug_assertions) {
            build.arg("--release");
        }
        let done = build.current_dir(env!("CARGO_MANIFEST_DIR")).stderr(Stdio::inherit()).output().expect("cargo runs");
        assert!(done.status.success(), "the binary does not build");
        let messages = text(&done.stdout);
        let executable = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()).find_map(|it| {
            let is_binary = it["target"]["name"] == "grifo" && it["executable"].is_string();
            is_binary.then(|| PathBuf::from(it["executable"].as_str().unwrap_or_default()))
        });
        executable.expect("cargo names the binary")
    })
}

fn command<A: AsRef<OsStr>>(arguments: &[A]) -> Command {
    let mut command = Command::new(binary());
    command.args(arguments).env_remove("GRIFO_URL").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn run<A: AsRef<OsStr>>(arguments: &[A]) -> Output {
    command(arguments).output().expect("the binary starts")
}

fn code(output: &Output) -> i32 {
    output.status.code().expect("an exit code")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

fn parsed(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

fn interrupt(child: &Child) {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).expect("a process id");
    kill_process(pid, Signal::INT).expect("a living process");
}

/// A log in a folder that vanishes with it.
struct LogFile {
    folder: tempfile::TempDir,
}

impl LogFile {
    fn new(content: impl AsRef<[u8]>) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("access.log"), content).expect("a file");
        Self { folder }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().expect("UTF-8").to_owned()
    }
}

#[test]
fn check_peek_and_reset_end_with_the_answer() {
    let server = Server::start_default();
    let ask = |arguments: &[&str]| {
        let target = ["--store", &server.url(), "--limit", "2/h + 9/d", "--json", "user:42"];
        run(&[arguments, &target].concat())
    };
    let allowed = ask(&["check", "--cost", "2"]);
    assert_eq!((code(&allowed), parsed(&allowed)["remaining"].as_u64()), (0, Some(0)));
    let denied = ask(&["check"]);
    assert_eq!((code(&denied), parsed(&denied)["denied_by"].as_u64()), (1, Some(0)));
    let wait = parsed(&denied)["retry_after"].as_f64().expect("a wait");
    assert!(wait > 1790.0 && wait <= 1800.0, "{wait}");
    assert_eq!(code(&ask(&["peek"])), 1);
    let never = ask(&["check", "--cost", "3"]);
    assert_eq!((code(&never), &parsed(&never)["retry_after"]), (1, &Value::Null));
    assert_eq!(code(&ask(&["peek", "--limiter", "other"])), 0);
    let reset = ask(&["reset"]);
    assert_eq!((code(&reset), parsed(&reset)["remaining"].as_u64()), (0, Some(2)));
    assert_eq!(code(&ask(&["peek"])), 0);
}

#[test]
fn the_store_may_come_from_the_environment() {
    let server = Server::start_default();
    let output = command(&["check", "--limit", "1/h", "k"]).env("GRIFO_URL", server.url()).output().expect("it runs");
    assert_eq!(code(&output), 0);
    let printed = text(&output.stdout);
    assert!(printed.starts_with("allowed: 0 of 1 left"), "{printed}");
    let log = LogFile::new(small_log());
    let elsewhere = command(&["replay", &log.path("access.log"), "--limit", "1/h"])
        .env("GRIFO_URL", "redis://127.0.0.1:1")
        .output()
        .expect("it runs");
    assert_eq!(code(&elsewhere), 0, "a replay asks only the store it is told");
}

#[test]
fn wrong_calls_end_with_2_and_say_what_to_do() {
    let log = LogFile::new("nothing\n{}\n");
    let cases: [(&[&str], &str); 17] = [
        (&["check", "--limit", "1/h", "k"], "GRIFO_URL"),
        (&["check", "--store", "memory://", "k"], "--limit"),
        (&["check", "--store", "memory://", "--limit", "1/m", "k"], "min"),
        (&["check", "--store", "memory://", "--limit", "1/h", ""], "65536"),
        (&["check", "--store", "memory://", "--limit", "1/h", "--cost", "x", "k"], "--cost"),
        (&["check", "--store", "memory://", "--limit", "1/h", "--timeout", "0", "k"], "timeout"),
        (&["check", "--store", "memory://", "--limit", "1/h", "--cost", "-1", "k"], "--cost"),
        (&["check", "--store", "memory://", "--limit", "1/h", "--timeout", "50ms", "k"], "0.05"),
        (&["chek", "--store", "memory://", "--limit", "1/h", "k"], "'check'"),
        (&["replay", &log.path("access.log"), "--limit", "1/h", "--plot", "replay.png"], ".svg"),
        (&["replay", &log.path("access.log"), "--limit", "1/h", "--plot", "/no/such/replay.svg"], "/no/such"),
        (&["ping", "--store", "http://h"], "redis://"),
        (&["ping", "--store", "redis+sentinel://h"], "master-name"),
        (&["ping", "--store", "redis://h", "--sentinel-password", "p"], "redis+sentinel://"),
        (&["replay", "/no/such/file", "--limit", "1/h"], "/no/such/file"),
        (&["replay", &log.path("access.log")], "--limit"),
        (&["replay", &log.path("access.log"), "--limit", "1/h"], "access log"),
    ];
    for (arguments, wanted) in cases {
        let output = run(arguments);
        let said = text(&output.stderr);
        assert_eq!(code(&output), 2, "{arguments:?}: {said}");
        assert!(said.starts_with("error: ") && said.contains(wanted), "{arguments:?}: {said}");
    }
    let output = run(&["check", "--store", "memory://", "--limit", "0/h", "--json", "k"]);
    assert_eq!((code(&output), &parsed(&output)["error"]["kind"]), (2, &"InvalidLimit".into()));
}

#[test]
fn passwords_are_never_printed() {
    let log = LogFile::new(small_log());
    let tcp = format!("redis://u:{SECRET}%23@127.0.0.1:1");
    let unix = format!("redis+unix:///no/socket?user=u&pass={SECRET}%23");
    let file = log.path("access.log");
    for url in [&tcp, &unix] {
        let calls: [&[&str]; 6] = [
            &["ping", "--store", url],
            &["check", "--store", url, "--limit", "1/h", "k"],
            &["replay", &file, "--limit", "1/h", "--store", url],
            &["ping", url],
            &["ping", "--store", url, "--help"],
            &["ping", "--store", url, "--timeout", url],
        ];
        for call in calls {
            for json in [&[][..], &["--json"]] {
                let output = command(&[call, json].concat()).env("GRIFO_URL", url).output().expect("it runs");
                let said = text(&output.stdout) + &text(&output.stderr);
                assert!(!said.contains(SECRET) && !said.is_empty(), "{call:?}: {said}");
            }
        }
        assert_eq!(code(&run(&["check", "--store", url, "--limit", "1/h", "k"])), 3);
    }
}

#[test]
fn ping_names_the_server_and_what_its_user_lacks() {
    let server = Server::start_default();
    let healthy = run(&["ping", "--store", &server.url(), "--json"]);
    assert_eq!((code(&healthy), parsed(&healthy)["lacking"].to_string()), (0, "[]".to_owned()));
    let found = parsed(&healthy);
    let name = found["server"].as_str().expect("a name");
    assert!(server.kind().name().starts_with(name), "{name}");
    let (major, minor) = server.version();
    assert!(found["version"].as_str().expect("a version").starts_with(&format!("{major}.{minor}.")));

    server.command::<(), _>(&["ACL", "SETUSER", "poor", "on", ">pw", "~*", "+@all", "-time", "-zcard"]);
    let url = server.url().replace("://", "://poor:pw@");
    let poor = run(&["ping", "--store", &url, "--json"]);
    assert_eq!((code(&poor), parsed(&poor)["lacking"].to_string()), (1, r#"["TIME","ZCARD"]"#.to_owned()));
    let said = text(&run(&["ping", "--store", &url]).stdout);
    assert!(said.contains("TIME, ZCARD") && said.contains("+time +zcard"), "{said}");
}

#[test]
fn ping_warns_and_is_content() {
    let cluster =
        Cluster::start_with(ClusterOptions { full_coverage: true, ..ClusterOptions::new(default_kind(), 1, 0) });
    let warned = run(&["ping", "--store", &cluster.url(), "--json"]);
    let warnings = parsed(&warned)["warnings"].as_array().cloned().expect("a list");
    assert_eq!((code(&warned), warnings.len()), (0, 1), "{warnings:?}");
    let said = text(&run(&["ping", "--store", &cluster.url()]).stdout);
    assert!(said.contains("ready") && said.contains("warning: cluster-require-full-coverage is on"), "{said}");
}

#[test]
fn a_store_is_asked_over_tls() {
    let server = Server::start_default();
    let front = TlsFront::start_mutual(server.addr());
    let path = |path: PathBuf| path.to_str().expect("UTF-8").to_owned();
    let (ca, certificate, key) = (path(front.ca_file()), path(front.client_cert_file()), path(front.client_key_file()));
    let shown = ["--tls-certificate", &certificate, "--tls-key", &key];
    let ask = |options: &[&str]| run(&[&["ping", "--store", &front.url()], &shown[..], options].concat());
    assert_eq!(code(&ask(&["--tls-ca-file", &ca])), 0);
    assert_eq!(code(&ask(&["--tls-insecure"])), 0);
    assert_eq!(code(&ask(&["--tls-ca-file", &ca, "--tls-server-name", "127.0.0.1"])), 0);
    for (options, wanted, hint) in [
        (&["--tls-ca-file", &ca, "--tls-server-name", "example.com"][..], 3, "tls_server_name"),
        (&["--tls-ca-file", "/no/such/ca.pem"], 2, "/no/such/ca.pem"),
        (&[], 3, "tls_ca_file"),
    ] {
        let output = ask(options);
        assert!(code(&output) == wanted && text(&output.stderr).contains(hint), "{output:?}");
    }
    let lone = run(&["ping", "--store", &front.url(), "--tls-key", &key]);
    assert!(code(&lone) == 2 && text(&lone.stderr).contains("--tls-certificate"), "{lone:?}");
    let needless = run(&["ping", "--store", &server.url(), "--tls-ca-file", &ca]);
    assert!(code(&needless) == 2 && text(&needless.stderr).contains("rediss://"), "{needless:?}");
    let plain = run(&["ping", "--store", &server.url().replace("redis://", "rediss://")]);
    assert!(code(&plain) == 3 && text(&plain.stderr).contains("is this its port for TLS?"), "{plain:?}");
}

#[test]
fn the_certificates_of_the_system_are_trusted_unless_told_otherwise() {
    let server = Server::start_default();
    let (front, other) = (TlsFront::start(server.addr()), TlsFront::start(server.addr()));
    let ask = |url: &str| {
        let mut command = command(&["ping", "--store", url]);
        command.env("SSL_CERT_FILE", front.ca_file()).env_remove("SSL_CERT_DIR").output().expect("it runs")
    };
    assert_eq!(code(&ask(&front.url())), 0);
    let stranger = ask(&other.url());
    assert!(code(&stranger) == 3 && text(&stranger.stderr).contains("whom this system trusts"), "{stranger:?}");
    let nobody =
        command(&["ping", "--store", &front.url()]).env("SSL_CERT_FILE", "/no/such").output().expect("it runs");
    assert!(code(&nobody) == 3 && text(&nobody.stderr).contains("tls_ca_file"), "{nobody:?}");
}
