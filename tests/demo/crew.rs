//! Those who take part: processes on a server, threads on the embedded store.

use std::io::BufReader;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use grifo::Client;

use crate::message::{self, Order, Report};
use crate::place::Place;
use crate::served::Served;
use crate::tally::{Count, Tally};
use crate::worker;

/// A process connects, and ends what it does, within this, also on a busy machine.
const IDLE_WITHIN: Duration = Duration::from_secs(15);
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
    /// Its end tells the process to end.
    input: Option<ChildStdin>,
}

impl Crew {
    /// Starts the processes and waits until all have connected. Threads need no such start.
    pub(crate) fn ready(place: &Place, size: usize) -> Result<Self, String> {
        let tallies: Vec<Arc<Tally>> = (0..size).map(|_| Arc::default()).collect();
        let mut crew = Self { tallies, processes: Vec::new(), threads: Vec::new() };
        if !place.is_embedded() {
            for tally in &crew.tallies {
                crew.processes.push(Process::start(&place.url(), Arc::clone(tally))?);
            }
            crew.wait_idle()?;
        }
        Ok(crew)
    }

    /// Lets all of them loose on one key.
    pub(crate) fn share(&mut self, client: &Client, key: &str) -> Result<(), String> {
        if self.processes.is_empty() {
            self.threads = self.tallies.iter().map(|tally| start_thread(client, key, tally)).collect();
            return Ok(());
        }
        self.tell(&Order::Share(key.to_owned()))
    }

    /// Has all of them ask about many keys, which are grouped by the master that holds them.
    pub(crate) fn spread(&mut self, keys: &[Vec<String>]) -> Result<(), String> {
        for tally in &self.tallies {
            *tally.served() = Served::new(keys.len());
        }
        self.tell(&Order::Spread(keys.to_vec()))
    }

    pub(crate) fn counts(&self) -> Result<Vec<Count>, String> {
        self.check()?;
        Ok(self.tallies.iter().map(|tally| tally.count()).collect())
    }

    pub(crate) fn served(&self) -> Result<Vec<Served>, String> {
        self.check()?;
        Ok(self.tallies.iter().map(|tally| tally.served().clone()).collect())
    }

    /// Waits for the last answer of each.
    pub(crate) fn stop(&mut self) -> Result<(), String> {
        if !self.processes.is_empty() {
            self.tell(&Order::Stop)?;
            return self.wait_idle();
        }
        self.tallies.iter().for_each(|tally| tally.set_stopped(true));
        for handle in self.threads.drain(..) {
            handle.join().map_err(|_| "one of those who take part panicked")?;
        }
        self.check()
    }

    fn tell(&mut self, order: &Order) -> Result<(), String> {
        for (process, tally) in self.processes.iter_mut().zip(&self.tallies) {
            let input = process.input.as_mut().ok_or("a process was ended already")?;
            if !matches!(order, Order::Stop) {
                tally.set_idle(false);
            }
            message::write(input, order).map_err(|error| format!("a process does not listen: {error}"))?;
        }
        Ok(())
    }

    fn wait_idle(&self) -> Result<(), String> {
        let deadline = Instant::now() + IDLE_WITHIN;
        while !self.tallies.iter().all(|tally| tally.is_idle()) {
            self.check()?;
            if Instant::now() > deadline {
                return Err(format!("a process was not ready within {IDLE_WITHIN:?}"));
            }
            thread::sleep(POLL);
        }
        self.check()
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
        if let Some(output) = child.stdout.take() {
            thread::spawn(move || hear(output, &tally));
        }
        Ok(Self { child, input })
    }
}

/// Ends the process: none is left behind, whatever went wrong.
impl Drop for Process {
    fn drop(&mut self) {
        self.input = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Takes down what a process says until it ends.
fn hear(output: ChildStdout, tally: &Tally) {
    for report in message::read(BufReader::new(output)) {
        match report {
            Ok(Report::Idle) => tally.set_idle(true),
            Ok(Report::Shared(count)) => tally.set_count(count),
            Ok(Report::Spread(served)) => *tally.served() = served,
            Ok(Report::Trouble(message)) | Err(message) => tally.set_trouble(message),
        }
    }
    tally.set_trouble("ended before it was told to".to_owned());
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
