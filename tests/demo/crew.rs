//! Those who take part: processes on a server, threads on the embedded store.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use grifo::Client;

use crate::place::Place;
use crate::tally::{Count, Tally};
use crate::worker;

const READY_WITHIN: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(2);

#[derive(Debug)]
pub(crate) struct Crew {
    tallies: Vec<Arc<Tally>>,
    processes: Vec<Process>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Process {
    child: Child,
    /// Its end tells the process to stop.
    input: Option<ChildStdin>,
    reader: Option<JoinHandle<()>>,
}

impl Crew {
    /// Starts the processes and waits until all have connected. Threads need no such start.
    pub(crate) fn ready(place: &Place, size: usize) -> Result<Self, String> {
        let tallies: Vec<Arc<Tally>> = (0..size).map(|_| Arc::default()).collect();
        let mut crew = Self { tallies, processes: Vec::new(), threads: Vec::new() };
        if place.is_embedded() {
            return Ok(crew);
        }
        for tally in &crew.tallies {
            crew.processes.push(Process::start(&place.url, Arc::clone(tally))?);
        }
        let deadline = Instant::now() + READY_WITHIN;
        while !crew.tallies.iter().all(|tally| tally.is_ready()) {
            crew.check()?;
            if Instant::now() > deadline {
                return Err(format!("the processes were not ready within {READY_WITHIN:?}"));
            }
            thread::sleep(POLL);
        }
        Ok(crew)
    }

    /// Lets all of them loose on a key.
    pub(crate) fn go(&mut self, client: &Client, key: &str) -> Result<(), String> {
        for process in &mut self.processes {
            process.tell(key)?;
        }
        if self.processes.is_empty() {
            self.threads = self.tallies.iter().map(|tally| start_thread(client, key, tally)).collect();
        }
        Ok(())
    }

    pub(crate) fn counts(&self) -> Result<Vec<Count>, String> {
        self.check()?;
        Ok(self.tallies.iter().map(|tally| tally.count()).collect())
    }

    /// Waits for the last answer of each, and gives what they counted.
    pub(crate) fn stop(&mut self) -> Result<Vec<Count>, String> {
        for process in &mut self.processes {
            process.input = None;
        }
        if self.processes.is_empty() {
            self.tallies.iter().for_each(|tally| tally.stop());
        }
        let readers = self.processes.iter_mut().filter_map(|process| process.reader.take());
        for handle in readers.chain(self.threads.drain(..)) {
            handle.join().map_err(|_| "one of those who took part panicked")?;
        }
        self.counts()
    }

    fn check(&self) -> Result<(), String> {
        for (index, tally) in self.tallies.iter().enumerate() {
            if let Some(trouble) = tally.trouble() {
                return Err(format!("number {} of those who take part: {trouble}", index + 1));
            }
        }
        Ok(())
    }
}

impl Process {
    fn start(url: &str, tally: Arc<Tally>) -> Result<Self, String> {
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let mut child = Command::new(program)
            .arg(worker::ARGUMENT)
            .env("GRIFO_URL", url)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("cannot start a process: {error}"))?;
        let input = child.stdin.take();
        let reader = child.stdout.take().map(|output| thread::spawn(move || read(output, &tally)));
        Ok(Self { child, input, reader })
    }

    fn tell(&mut self, key: &str) -> Result<(), String> {
        let input = self.input.as_mut().ok_or("a process was stopped already")?;
        writeln!(input, "go {key}").map_err(|error| format!("a process does not listen: {error}"))
    }
}

/// Ends with the process, or with what it was told: none is left behind, whatever went wrong.
impl Drop for Process {
    fn drop(&mut self) {
        self.input = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Takes down what a process says until it ends.
fn read(output: ChildStdout, tally: &Tally) {
    for line in BufReader::new(output).lines().map_while(Result::ok) {
        match line.split_once(' ').unwrap_or((&line, "")) {
            ("ready", _) => tally.set_ready(),
            ("count", numbers) => {
                if let Some(count) = parse(numbers) {
                    tally.set(count);
                }
            }
            ("trouble", message) => tally.set_trouble(message.to_owned()),
            ("done", _) => return,
            _ => tally.set_trouble(format!("said {line:?}")),
        }
    }
    tally.set_trouble("ended before it was told to".to_owned());
}

fn parse(numbers: &str) -> Option<Count> {
    let (admitted, denied) = numbers.split_once(' ')?;
    Some(Count { admitted: admitted.parse().ok()?, denied: denied.parse().ok()? })
}

fn start_thread(client: &Client, key: &str, tally: &Arc<Tally>) -> JoinHandle<()> {
    let (client, key, tally) = (client.clone(), key.to_owned(), Arc::clone(tally));
    thread::spawn(move || {
        let outcome = worker::runtime().and_then(|runtime| worker::hammer(&runtime, &client, &key, &tally));
        if let Err(message) = outcome {
            tally.set_trouble(message);
        }
    })
}
