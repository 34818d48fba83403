//! Other processes that hammer the same keys at the same time.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

use serde::Deserialize;

/// What each process does.
#[derive(Clone, Debug)]
pub struct Work<'a> {
    /// The worker's program.
    pub program: &'a str,
    /// Which store.
    pub url: &'a str,
    /// The Limits in text form.
    pub limits: &'a str,
    /// How many keys.
    pub keys: usize,
    /// How often each caller hits each key.
    pub hits: usize,
    /// How many callers there are in each process.
    pub callers: usize,
    /// What the names of the keys begin with.
    pub prefix: &'a str,
}

/// What the callers of one or more processes were told.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Counts {
    /// Hits that were allowed, of all keys together.
    pub allowed: u64,
    /// Hits that were allowed of each key.
    pub by_key: Vec<u64>,
    /// Hits that were denied.
    pub denied: u64,
    /// Decisions that the store did not make.
    pub degraded: u64,
    /// Calls that failed.
    pub errors: u64,
}

impl Counts {
    fn add(mut self, other: &Self) -> Self {
        self.by_key.resize(other.by_key.len(), 0);
        self.by_key.iter_mut().zip(&other.by_key).for_each(|(all, one)| *all += one);
        self.allowed += other.allowed;
        self.denied += other.denied;
        self.degraded += other.degraded;
        self.errors += other.errors;
        self
    }
}

/// Runs `count` processes that begin at the same time, and gives their counts together.
///
/// # Panics
/// When one of them does not run to its end.
pub fn run(count: usize, work: &Work<'_>) -> Counts {
    let mut workers: Vec<_> = (0..count).map(|_| Worker::start(work)).collect();
    workers.iter_mut().for_each(|worker| assert_eq!(worker.line(), "ready\n"));
    workers.iter_mut().for_each(Worker::begin);
    workers.into_iter().map(Worker::finish).fold(Counts::default(), |all, one| all.add(&one))
}

struct Worker {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Worker {
    fn start(work: &Work<'_>) -> Self {
        let numbers = [work.keys, work.hits, work.callers].map(|number| number.to_string());
        let mut child = Command::new(work.program)
            .args([work.url, work.limits])
            .args(numbers)
            .arg(work.prefix)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the worker starts");
        let output = BufReader::new(child.stdout.take().expect("its output"));
        Self { child, output }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a line of the worker");
        line
    }

    fn begin(&mut self) {
        let input = self.child.stdin.as_mut().expect("its input");
        input.write_all(b"begin\n").expect("the worker listens");
    }

    fn finish(mut self) -> Counts {
        let line = self.line();
        assert!(self.child.wait().expect("the end of the worker").success(), "{line}");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line:?}: {error}"))
    }
}
