//! `grifo ping`

use std::process::ExitCode;

use clap::Args;
use grifo::Pong;
use serde_json::json;

use crate::Outcome;
use crate::args::{Output, Store};
use crate::terminal::{Paint, print, print_json, safe};

/// Ask the store for its health: which server, which version, and which rights its user lacks
#[derive(Debug, Args)]
pub(crate) struct Ping {
    #[command(flatten)]
    store: Store,

    #[command(flatten)]
    pub(crate) output: Output,
}

impl Ping {
    pub(crate) async fn run(&self) -> Outcome {
        let pong = self.store.client()?.ping().await?;
        if self.output.json {
            print_json(&json!({
                "server": pong.server,
                "version": pong.version,
                "lacking": pong.lacking,
                "warnings": pong.warnings,
                "round_trip": pong.round_trip.as_secs_f64(),
            }))?;
        } else {
            print(&text(&pong, Paint::of_stdout()))?;
        }
        Ok(if pong.lacking.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) })
    }
}

fn text(pong: &Pong, paint: Paint) -> String {
    let mut text = health(pong, paint);
    for warning in &pong.warnings {
        text.push_str(&format!("{}: {warning}\n", paint.bad("warning")));
    }
    text
}

fn health(pong: &Pong, paint: Paint) -> String {
    let milliseconds = pong.round_trip.as_secs_f64() * 1000.0;
    let (server, version) = (safe(pong.server.as_bytes()), safe(pong.version.as_bytes()));
    let mut text = format!("{server} {version} answered in {milliseconds:.2} ms\n");
    if pong.lacking.is_empty() {
        text.push_str(&format!("{}: the user has every right that grifo needs\n", paint.good("ready")));
        return text;
    }
    let allow: Vec<String> = pong.lacking.iter().map(|name| acl_rule(name)).collect();
    text.push_str(&format!(
        "{}: the user may not run {}\nallow it: ACL SETUSER <user> {}\n",
        paint.bad("lacking"),
        pong.lacking.join(", "),
        allow.join(" ")
    ));
    text
}

fn acl_rule(command: &str) -> String {
    if command.starts_with('~') { command.to_owned() } else { format!("+{}", command.to_lowercase()) }
}
