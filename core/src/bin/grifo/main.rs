//! The command line of grifo: asks a store about a key, replays access logs against Limits, and measures a store.

mod args;
mod bench;
mod check;
mod decision;
mod failure;
mod interrupt;
mod peek;
mod ping;
mod replay;
mod reset;
mod terminal;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::failure::Failure;

/// How a command that did what it was told ends: with 0 or, for a denial, with 1.
type Outcome = Result<ExitCode, Failure>;

/// Exact distributed rate limiting in Redis and Valkey
#[derive(Debug, Parser)]
#[command(name = "grifo", version, after_help = AFTER_HELP, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Check(check::Check),
    Peek(peek::Peek),
    Reset(reset::Reset),
    Ping(ping::Ping),
    Replay(replay::Replay),
    Bench(bench::Bench),
}

const AFTER_HELP: &str = "\
Limits: [algorithm] COUNT/PERIOD [burst N], up to four joined by ' + ' and then decided together
  100/min burst 20              token-bucket, the default: refills continuously, holds up to N
  sliding-window 1000/h         exact in any window; memory grows with the hits
  sliding-window-counter 10/s   an estimate of that in constant memory
  fixed-window 5000/d           windows aligned to the epoch; up to twice the count across an edge
  10/s + 1000/h                 both must pass, or nothing is taken
  Periods: ms, s, min, h, d, also with a number: 15min

Stores: memory:// · redis://[user:pass@]host[:port][/db] · redis+unix:///path[?user=…&pass=…&db=…] ·
        redis+cluster://[user:pass@]host[:port][,host[:port]…] ·
        redis+sentinel://[user:pass@]host[:port][,host[:port]…]/master-name[/db]
        rediss:// and rediss+cluster:// are the same with TLS; see the options --tls-… of each command
  A password on the command line can be seen by other users of the machine; GRIFO_URL and
  GRIFO_SENTINEL_PASSWORD cannot.

Exit codes:
  0    allowed, or done
  1    denied; of ping: the store's user lacks rights
  2    the call was wrong: an option, a limit, a key, a file
  3    the store could not decide
  130  interrupted

Examples:
  export GRIFO_URL=redis://localhost
  grifo ping
  grifo check --limit '100/min burst 20' user:42 && echo go on
  grifo peek --limit '100/min burst 20' --json user:42
  grifo replay access.log --limit '10/min burst 5' --limit '5/10s + 30/min' --plot replay.svg
  grifo bench --limit '100/min burst 20' --callers 500";

impl Command {
    fn wants_json(&self) -> bool {
        match self {
            Self::Check(check) => check.output.json,
            Self::Peek(peek) => peek.output.json,
            Self::Reset(reset) => reset.output.json,
            Self::Ping(ping) => ping.output.json,
            Self::Replay(replay) => replay.output.json,
            Self::Bench(bench) => bench.output.json,
        }
    }

    async fn run(&self) -> Outcome {
        match self {
            Self::Check(check) => check.run().await,
            Self::Peek(peek) => peek.run().await,
            Self::Reset(reset) => reset.run().await,
            Self::Ping(ping) => ping.run().await,
            Self::Replay(replay) => replay.run().await,
            Self::Bench(bench) => bench.run().await,
        }
    }
}

fn main() -> ExitCode {
    let command = match Cli::try_parse() {
        Ok(cli) => cli.command,
        Err(error) => return failure::report_usage(&error),
    };
    let outcome = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime.block_on(command.run()),
        Err(error) => Err(Failure::Usage(format!("no thread could be started: {error}"))),
    };
    outcome.unwrap_or_else(|failure| failure.report(command.wants_json()))
}
