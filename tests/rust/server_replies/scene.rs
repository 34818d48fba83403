//! A server that refuses, the words in which it does, and a client that meets it.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use grifo::testing::kind_of_reply;
use grifo::{Client, Error, FailurePolicy, Limiter};
use grifo_tests::{CommandStats, Server};
use tokio::task::JoinHandle;

use crate::table::{Cell, Row};

/// Longer than any cause lasts.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
/// What is shown of a server's words.
const SHOWN: usize = 160;

/// What a call does that meets a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    /// It succeeds while the cause lasts: how.
    Overcome(&'static str),
    /// It is sent again until the cause is gone.
    WaitedOut,
    /// It fails, having been sent once.
    Final,
    /// It fails, having been sent more than once.
    RetriedThenFinal,
    /// It fails, since the cluster says that nobody serves the slot.
    FinalOnceLearnt,
    /// No call of grifo meets it.
    Unmet,
}

impl Then {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Overcome(how) => how,
            Self::WaitedOut => "sent again until it runs",
            Self::Final => "final",
            Self::RetriedThenFinal => "sent again for a while, then final",
            Self::FinalOnceLearnt => "the cluster is asked who serves the slot, then final",
            Self::Unmet => "no call of grifo meets it",
        }
    }
}

/// A limiter whose calls are patient and raise what goes wrong.
pub(crate) fn limiter(url: &str) -> Limiter {
    let client = Client::builder(url).timeout(PATIENCE).on_failure(FailurePolicy::Raise).build().unwrap();
    client.limiter("case", "10/20000d").unwrap()
}

/// The error line with which a server answers the last of some commands on a new connection; without the dash.
pub(crate) fn refusal(address: SocketAddr, commands: &[&[&str]]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut line = String::new();
    for command in commands {
        let mut request = format!("*{}\r\n", command.len());
        command.iter().for_each(|word| request.push_str(&format!("${}\r\n{word}\r\n", word.len())));
        // A server may have refused and gone before it was asked.
        let _ = stream.write_all(request.as_bytes());
        line.clear();
        reader.read_line(&mut line).unwrap();
    }
    let words = line.strip_prefix('-').unwrap_or_else(|| panic!("{commands:?} is not refused: {line}"));
    words.trim_end().to_owned()
}

/// A row of the table. Ports and hashes, which differ from run to run, are replaced, and long words are cut.
pub(crate) fn row(situation: &'static str, words: &str, then: Then) -> Row {
    let mut said = String::new();
    for part in words.split_inclusive(|c: char| !c.is_ascii_alphanumeric()) {
        let name = part.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
        let is_hash = name.len() == 40 && name.chars().all(|c| c.is_ascii_hexdigit());
        let is_port = said.ends_with("127.0.0.1:");
        let shown = if is_hash {
            "HASH"
        } else if is_port {
            "PORT"
        } else {
            name
        };
        said.push_str(shown);
        said.push_str(&part[name.len()..]);
    }
    Row { situation, cell: Cell::new(said.chars().take(SHOWN).collect(), kind_of_reply(words), then.name()) }
}

/// How often some servers refused a call, as far as they can be asked.
fn refusals(servers: &[&Server]) -> u64 {
    let of = |server: &Server| {
        server.try_command::<String, _>(&["INFO", "commandstats"]).ok()?;
        let stats = CommandStats::read(server);
        let of = |name: &str| stats.of(name).rejected_calls + stats.of(name).failed_calls;
        Some(of("evalsha") + of("evalsha_ro"))
    };
    servers.iter().filter_map(|server| of(server)).sum()
}

/// A call that goes on and meets a refusal.
pub(crate) struct Meeting<'a, T> {
    servers: Vec<&'a Server>,
    /// Refusals before the call.
    before: u64,
    call: JoinHandle<Result<T, Error>>,
}

impl<'a, T: std::fmt::Debug + Send + 'static> Meeting<'a, T> {
    pub(crate) fn begin(
        servers: Vec<&'a Server>,
        call: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Self {
        Self { before: refusals(&servers), servers, call: tokio::spawn(call) }
    }

    /// Waits until the call has ended, or was refused so often that it must have been sent again; ends the cause, and
    /// checks what became of the call.
    pub(crate) async fn judge(self, what: &str, then: Then, words: &str, cure: impl FnOnce()) -> Result<T, Error> {
        let mut refused = 0;
        while !self.call.is_finished() && (then != Then::WaitedOut || refused < 2) {
            tokio::time::sleep(Duration::from_millis(2)).await;
            refused = refusals(&self.servers).saturating_sub(self.before);
        }
        let was_done = self.call.is_finished();
        cure();
        let outcome = self.call.await.expect("the call does not panic");
        let succeeds = matches!(then, Then::Overcome(_) | Then::WaitedOut);
        let is_as_expected = outcome.is_ok() == succeeds && was_done != (then == Then::WaitedOut);
        assert!(is_as_expected, "{what}: {then:?}, refused {refused} times, done {was_done}: {outcome:?}");
        assert!(then != Then::RetriedThenFinal || refused > 1, "{what}: refused {refused} times");
        if let Err(error) = &outcome {
            assert_eq!(error.kind(), kind_of_reply(words), "{what}: {words} became {error}");
        }
        outcome
    }
}
