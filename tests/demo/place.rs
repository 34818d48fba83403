//! Where the limit lives: a server of the demo's own, one that is named, or the embedded store.

use std::panic;

use grifo_tests::Server;

use crate::{LIMIT, WORKERS};

pub(crate) const EMBEDDED: &str = "memory://";

#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) url: String,
    what: String,
    embedded: bool,
    /// Runs as long as this lives.
    _server: Option<Server>,
}

impl Place {
    pub(crate) fn find() -> Self {
        match std::env::var("GRIFO_URL").ok().filter(|url| !url.is_empty()) {
            Some(url) if url.starts_with("memory:") => Self::embedded("GRIFO_URL asks for the embedded store"),
            // The URL may hold a password, so it is not shown.
            Some(url) => {
                Self { url, what: "the server that GRIFO_URL names".to_owned(), embedded: false, _server: None }
            }
            None => match start_server() {
                Ok(server) => {
                    let what = format!("started on {}", server.addr());
                    Self { url: server.url(), what, embedded: false, _server: Some(server) }
                }
                Err(why) => Self::embedded(&format!("No server can be had ({why})")),
            },
        }
    }

    fn embedded(why: &str) -> Self {
        let what = format!("{why}.\nAll happens in this process, with threads in place of processes.");
        Self { url: EMBEDDED.to_owned(), what, embedded: true, _server: None }
    }

    pub(crate) const fn is_embedded(&self) -> bool {
        self.embedded
    }

    /// What takes part.
    pub(crate) const fn noun(&self) -> &'static str {
        if self.embedded { "thread" } else { "process" }
    }

    pub(crate) fn introduction(&self, server: &str) -> String {
        if self.embedded {
            return format!("{}\n{WORKERS} threads share one limit of {LIMIT} on the embedded store.", self.what);
        }
        format!("{WORKERS} processes share one limit of {LIMIT} on {server}, {}.", self.what)
    }
}

/// The harness panics where there is no server; here that is no failure.
fn start_server() -> Result<Server, String> {
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|_| {}));
    let outcome = panic::catch_unwind(Server::start_default);
    panic::set_hook(hook);
    outcome.map_err(|payload| {
        let message = payload.downcast_ref::<String>().map_or("it does not start", String::as_str);
        message.lines().next().unwrap_or_default().to_owned()
    })
}
