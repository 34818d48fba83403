//! Every command a server ran during a piece of code, those of scripts included.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::server::Server;

/// One command as the server saw it.
#[derive(Clone, Debug, PartialEq)]
pub struct MonitorLine {
    /// Server time, in seconds since the Unix epoch.
    pub time: f64,
    /// The database.
    pub db: u64,
    /// The client's address, or `lua` for a command that a script ran.
    pub source: String,
    /// The command and its arguments.
    pub args: Vec<Vec<u8>>,
}

impl MonitorLine {
    /// The command's name in capitals.
    pub fn name(&self) -> String {
        self.args.first().map(|a| String::from_utf8_lossy(a).to_uppercase()).unwrap_or_default()
    }

    /// Whether a script ran it.
    pub fn is_from_script(&self) -> bool {
        self.source == "lua"
    }
}

/// A running recording.
#[derive(Debug)]
pub struct Monitor<'a> {
    server: &'a Server,
    end_mark: String,
    reader: JoinHandle<std::io::Result<Vec<MonitorLine>>>,
}

impl<'a> Monitor<'a> {
    /// Starts to record; everything the server runs from now on is seen.
    ///
    /// # Panics
    /// When the server does not answer.
    pub fn start(server: &'a Server) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let end_mark = format!("grifo-monitor-end-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let stream = open(server).unwrap_or_else(|e| panic!("cannot monitor {}: {e}", server.url()));
        let mark = end_mark.clone();
        let reader = std::thread::spawn(move || collect(stream, &mark));
        Self { server, end_mark, reader }
    }

    /// Ends the recording and gives what was seen, in order.
    ///
    /// # Panics
    /// When the server does not answer.
    pub fn finish(self) -> Vec<MonitorLine> {
        // A mark through the server itself: whatever ran before it has been reported before it.
        let mut connection = self.server.connection().expect("a connection that ends the recording");
        redis::cmd("ECHO").arg(&self.end_mark).exec(&mut connection).expect("the mark that ends the recording");
        let mut lines = self.reader.join().expect("the recording").expect("the recorded lines");
        strip_own(&mut lines);
        lines
    }

    /// Records what runs during a closure.
    ///
    /// # Panics
    /// When the server does not answer.
    pub fn record<T>(server: &Server, code: impl FnOnce() -> T) -> (T, Vec<MonitorLine>) {
        let monitor = Monitor::start(server);
        let value = code();
        (value, monitor.finish())
    }

    /// Records what runs while a future is awaited.
    ///
    /// # Panics
    /// When the server does not answer.
    pub async fn record_async<T>(server: &Server, future: impl Future<Output = T>) -> (T, Vec<MonitorLine>) {
        let monitor = Monitor::start(server);
        let value = future.await;
        (value, monitor.finish())
    }
}

/// The connection that brings the mark shows up itself: its lines share the mark's address, which comes last.
fn strip_own(lines: &mut Vec<MonitorLine>) {
    if let Some(own) = lines.pop() {
        lines.retain(|line| line.source != own.source);
    }
}

fn open(server: &Server) -> std::io::Result<BufReader<TcpStream>> {
    let mut stream = TcpStream::connect(server.addr())?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    if let Some(password) = server.password() {
        stream.write_all(format!("AUTH {password}\r\n").as_bytes())?;
    }
    stream.write_all(b"MONITOR\r\n")?;
    let mut reader = BufReader::new(stream);
    let answers = if server.password().is_some() { 2 } else { 1 };
    for _ in 0..answers {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        if !line.starts_with("+OK") {
            return Err(std::io::Error::other(line));
        }
    }
    Ok(reader)
}

fn collect(mut reader: BufReader<TcpStream>, end_mark: &str) -> std::io::Result<Vec<MonitorLine>> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Err(std::io::Error::other("the server closed the recording"));
        }
        let Some(parsed) = parse(&line) else { continue };
        let is_last = parsed.name() == "ECHO" && parsed.args.get(1).is_some_and(|a| a == end_mark.as_bytes());
        lines.push(parsed);
        if is_last {
            return Ok(lines);
        }
    }
}

/// Reads `+1700000000.123456 [0 127.0.0.1:50000] "set" "k" "v"`.
fn parse(line: &str) -> Option<MonitorLine> {
    let (time, rest) = line.strip_prefix('+')?.split_once(" [")?;
    let (origin, args) = rest.split_once("] ")?;
    let (db, source) = origin.split_once(' ')?;
    Some(MonitorLine {
        time: time.parse().ok()?,
        db: db.parse().ok()?,
        source: source.to_string(),
        args: parse_args(args.trim_end().as_bytes()),
    })
}

fn parse_args(text: &[u8]) -> Vec<Vec<u8>> {
    let mut args = Vec::new();
    let mut current: Option<Vec<u8>> = None;
    let mut bytes = text.iter().copied();
    while let Some(byte) = bytes.next() {
        match (&mut current, byte) {
            (None, b'"') => current = Some(Vec::new()),
            (Some(_), b'"') => args.extend(current.take()),
            (Some(arg), b'\\') => arg.extend(unescape(&mut bytes)),
            (Some(arg), other) => arg.push(other),
            (None, _) => {}
        }
    }
    args
}

fn unescape(bytes: &mut impl Iterator<Item = u8>) -> Option<u8> {
    let digit = |b: Option<u8>| b.and_then(|b| char::from(b).to_digit(16));
    Some(match bytes.next()? {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'a' => 7,
        b'b' => 8,
        b'x' => u8::try_from(digit(bytes.next())? * 16 + digit(bytes.next())?).ok()?,
        other => other,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server_binary::installed;

    #[test]
    fn commands_of_clients_and_scripts_are_seen_on_every_kind() {
        for binary in installed() {
            let server = Server::start(binary.kind);
            let ((), lines) = Monitor::record(&server, || {
                server.command::<(), _>(&["EVAL", "return redis.call('SET', KEYS[1], 1)", "1", "k"]);
            });
            let from_script: Vec<_> = lines.iter().filter(|l| l.is_from_script()).collect();
            assert_eq!(from_script.len(), 1, "{}: {lines:?}", binary.kind);
            assert_eq!(from_script[0].args, [&b"SET"[..], b"k", b"1"]);
            assert!(lines.iter().any(|l| l.name() == "EVAL" && !l.is_from_script()));
            assert!(!lines.iter().any(|l| l.name() == "ECHO"));
        }
    }

    #[test]
    fn any_bytes_come_back_as_they_were() {
        let server = Server::start_with(installed()[0].kind, &["--requirepass", "secret"]);
        let all: Vec<u8> = (0..=255).collect();
        let ((), lines) = Monitor::record(&server, || server.command::<(), _>(&[&b"SET"[..], &all, b"] \" ["]));
        let set = lines.iter().find(|l| l.name() == "SET").unwrap();
        assert_eq!(set.args[1..], [all, b"] \" [".to_vec()]);
    }

    #[tokio::test]
    async fn a_future_is_recorded() {
        let server = Server::start_default();
        let client = redis::Client::open(server.url()).unwrap();
        let mut connection = client.get_multiplexed_async_connection().await.unwrap();
        let work = async { redis::cmd("GET").arg("k").exec_async(&mut connection).await.unwrap() };
        let ((), lines) = Monitor::record_async(&server, work).await;
        assert_eq!(lines.len(), 1);
        assert_eq!(lines[0].name(), "GET");
    }
}
