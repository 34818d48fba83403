//! One real server on a free loopback port, in a temporary folder.
//!
//! Every server ends with its [`Server`], and at the latest with the test process (see [`crate::scratch`]).

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use redis::{Connection, FromRedisValue, RedisResult};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use crate::ports::free_port;
use crate::scratch::{self, PID_FILE};
use crate::server_binary::{self, ServerBinary, ServerKind};

/// A server must answer within this, also on a machine that is busy compiling.
const START_DEADLINE: Duration = Duration::from_secs(20);
const COMMAND_TIMEOUT: Duration = Duration::from_secs(10);
/// Writes the process id before it becomes the server, so that the guard always finds it.
const LAUNCH: &str = r#"echo $$ > "$1" && shift && exec "$@""#;

/// A running server; dropping it kills it and removes its folder.
#[derive(Debug)]
pub struct Server {
    binary: &'static ServerBinary,
    port: u16,
    dir: PathBuf,
    args: Vec<String>,
    child: Option<Child>,
}

impl Server {
    /// Starts the default server: Valkey, or what `GRIFO_TEST_SERVER` names.
    ///
    /// # Panics
    /// When there is no server, or it does not start.
    pub fn start_default() -> Self {
        Self::start(server_binary::installed()[0].kind)
    }

    /// Starts a server of one kind.
    ///
    /// # Panics
    /// When this machine lacks it, or it does not start.
    pub fn start(kind: ServerKind) -> Self {
        Self::start_with(kind, &[])
    }

    /// Starts a server with more options, in the form `&["--maxmemory", "1mb"]`.
    ///
    /// # Panics
    /// When this machine lacks it, or it does not start; the message holds the server's log.
    pub fn start_with(kind: ServerKind, args: &[&str]) -> Self {
        Self::try_start_with(kind, args).unwrap_or_else(|e| panic!("{kind}: {e}"))
    }

    /// Like [`Server::start_with`], for options that a server may refuse.
    ///
    /// # Errors
    /// Why it did not start, with its log.
    pub fn try_start_with(kind: ServerKind, args: &[&str]) -> Result<Self, String> {
        Self::try_start_configured(kind, args, "")
    }

    /// Like [`Server::try_start_with`], with more lines in its configuration file, where it may rewrite them.
    ///
    /// # Errors
    /// Why it did not start, with its log.
    pub fn try_start_configured(kind: ServerKind, args: &[&str], lines: &str) -> Result<Self, String> {
        let binary = server_binary::find(kind).ok_or("not on this machine; run `make servers`")?;
        let mut failure = String::new();
        // Another test process may take the port between the look and the start.
        for _ in 0..3 {
            match Self::start_on(binary, free_port(), args, lines) {
                Err(e) if e.contains("in use") => failure = e,
                result => return result,
            }
        }
        Err(failure)
    }

    fn start_on(binary: &'static ServerBinary, port: u16, args: &[&str], lines: &str) -> Result<Self, String> {
        let args = args.iter().map(|a| (*a).to_string()).collect();
        let mut server = Self { binary, port, dir: scratch::new_dir(), args, child: None };
        fs::write(server.dir.join("conf"), server.config() + lines).map_err(|e| e.to_string())?;
        server.launch()?;
        Ok(server)
    }

    /// A file rather than options, because a sentinel must be able to rewrite it.
    fn config(&self) -> String {
        let dir = self.dir.display();
        let mut text = format!(
            "port {}\nbind 127.0.0.1\ndaemonize no\ndir {dir}\nlogfile {dir}/log\n\
             unixsocket {dir}/socket\nsave \"\"\nappendonly no\n",
            self.port
        );
        if self.binary.version.0 >= 7 {
            text.push_str("enable-debug-command local\n");
        }
        text
    }

    fn launch(&mut self) -> Result<(), String> {
        let _ = fs::remove_file(self.socket());
        let output = fs::File::create(self.dir.join("output")).map_err(|e| e.to_string())?;
        let errors = output.try_clone().map_err(|e| e.to_string())?;
        // A group of its own, so that Ctrl-C reaches it only through the guard.
        let child = Command::new("sh")
            .args(["-c", LAUNCH, "grifo-launch"])
            .arg(self.dir.join(PID_FILE))
            .arg(&self.binary.path)
            .arg(self.dir.join("conf"))
            .args(&self.args)
            .current_dir(&self.dir)
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            .process_group(0)
            .spawn()
            .map_err(|e| format!("cannot start {}: {e}", self.binary.path.display()))?;
        self.child = Some(child);
        self.wait_ready()
    }

    fn wait_ready(&mut self) -> Result<(), String> {
        let deadline = Instant::now() + START_DEADLINE;
        while !self.answers() {
            if !self.is_running() {
                return Err(format!("ended at start:\n{}", self.log()));
            }
            if Instant::now() > deadline {
                return Err(format!("no answer within {START_DEADLINE:?}:\n{}", self.log()));
            }
            sleep(Duration::from_millis(3));
        }
        Ok(())
    }

    /// Whether it answers within half a second: not when it was killed, is frozen or loads its data.
    ///
    /// Asks over the socket in its own folder, where nobody else can answer.
    pub fn answers(&self) -> bool {
        let ask = || -> std::io::Result<String> {
            let mut stream = UnixStream::connect(self.socket())?;
            stream.set_read_timeout(Some(Duration::from_millis(500)))?;
            stream.write_all(b"PING\r\n")?;
            let mut line = String::new();
            BufReader::new(stream).read_line(&mut line)?;
            Ok(line)
        };
        // An error such as NOAUTH is an answer too.
        ask().is_ok_and(|line| line.starts_with('+') || line.starts_with('-') && !line.starts_with("-LOADING"))
    }

    /// Which server it is.
    pub fn kind(&self) -> ServerKind {
        self.binary.kind
    }

    /// Major and minor version.
    pub fn version(&self) -> (u32, u32) {
        self.binary.version
    }

    /// Its port, the same after every restart.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its address.
    pub fn addr(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// `redis://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("redis://{}", self.addr())
    }

    /// `redis+unix://PATH`.
    pub fn unix_url(&self) -> String {
        format!("redis+unix://{}", self.socket().display())
    }

    /// Its Unix socket.
    pub fn socket(&self) -> PathBuf {
        self.dir.join("socket")
    }

    /// Its folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Its process id.
    ///
    /// # Panics
    /// When it was killed and not restarted.
    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("the server was killed").id()
    }

    /// What it logged and printed so far.
    pub fn log(&self) -> String {
        let read = |name| fs::read(self.dir.join(name)).unwrap_or_default();
        let (output, log) = (read("output"), read("log"));
        String::from_utf8_lossy(&output).into_owned() + &String::from_utf8_lossy(&log)
    }

    /// Whether its process lives.
    pub fn is_running(&mut self) -> bool {
        self.child.as_mut().is_some_and(|c| matches!(c.try_wait(), Ok(None)))
    }

    /// Freezes it (SIGSTOP): connections stay open and nothing answers. Returns once it stands still.
    ///
    /// # Panics
    /// When it was killed and not restarted.
    pub fn stop(&self) {
        self.signal(Signal::STOP);
        let _ = waitpid(Some(self.raw_pid()), WaitOptions::UNTRACED);
    }

    /// Wakes it (SIGCONT).
    ///
    /// # Panics
    /// When it was killed and not restarted.
    pub fn cont(&self) {
        self.signal(Signal::CONT);
    }

    fn raw_pid(&self) -> Pid {
        let pid = i32::try_from(self.pid()).ok().and_then(Pid::from_raw);
        pid.expect("a child has a positive process id")
    }

    fn signal(&self, signal: Signal) {
        kill_process(self.raw_pid(), signal).unwrap_or_else(|e| panic!("cannot signal the server: {e}"));
    }

    /// Kills it (SIGKILL) and waits for its end; port and folder stay its own.
    pub fn kill_hard(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        let _ = child.kill();
        // Before the process id is free for others, nobody may find it in the file any more.
        let _ = fs::remove_file(self.dir.join(PID_FILE));
        let _ = child.wait();
    }

    /// Kills it if it still runs and starts it again on the same port, empty unless it kept its data on disk.
    ///
    /// # Panics
    /// When it does not start.
    pub fn restart(&mut self) {
        self.kill_hard();
        self.launch().unwrap_or_else(|e| panic!("{}: {e}", self.kind()));
    }

    /// Like [`Server::restart`], with other options from now on.
    ///
    /// # Panics
    /// When it does not start.
    pub fn restart_with(&mut self, args: &[&str]) {
        self.args = args.iter().map(|a| (*a).to_string()).collect();
        self.restart();
    }

    /// A plain connection, independent of what is under test, logged in when the server was given `--requirepass`.
    ///
    /// # Errors
    /// When it cannot be reached.
    pub fn connection(&self) -> RedisResult<Connection> {
        let client = redis::Client::open(self.url())?;
        let mut connection = client.get_connection_with_timeout(COMMAND_TIMEOUT)?;
        connection.set_read_timeout(Some(COMMAND_TIMEOUT))?;
        if let Some(password) = self.password() {
            redis::cmd("AUTH").arg(password).exec(&mut connection)?;
        }
        Ok(connection)
    }

    /// What follows `--requirepass` among its options.
    pub(crate) fn password(&self) -> Option<&str> {
        let option = self.args.iter().position(|a| a == "--requirepass")?;
        self.args.get(option + 1).map(String::as_str)
    }

    /// Runs one command on a new connection.
    ///
    /// # Errors
    /// What the server or the connection answered.
    pub fn try_command<T: FromRedisValue, A: AsRef<[u8]>>(&self, args: &[A]) -> RedisResult<T> {
        let mut command = redis::Cmd::new();
        for arg in args {
            command.arg(arg.as_ref());
        }
        command.query(&mut self.connection()?)
    }

    /// Like [`Server::try_command`], for commands that must succeed.
    ///
    /// # Panics
    /// When it fails.
    pub fn command<T: FromRedisValue, A: AsRef<[u8]>>(&self, args: &[A]) -> T {
        self.try_command(args).unwrap_or_else(|e| panic!("{}: {e}", self.kind()))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill_hard();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

#[cfg(test)]
#[path = "server_tests.rs"]
mod tests;
