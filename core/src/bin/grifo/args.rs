//! Options that several subcommands share.

use std::ffi::OsString;
use std::time::Duration;

use clap::Args;
use grifo::{Client, ClientBuilder, FailurePolicy, Limiter};

use crate::failure::Failure;

/// How the answer is printed.
#[derive(Debug, Args)]
pub(crate) struct Output {
    /// Print JSON; errors too, as {"error": …}
    #[arg(long)]
    pub(crate) json: bool,
}

/// Which store is asked, and for how long.
#[derive(Debug, Args)]
pub(crate) struct Store {
    /// The store's address, such as redis://localhost
    #[arg(long, value_name = "URL", env = "GRIFO_URL", hide_env_values = true)]
    store: Option<String>,

    /// Beginning of all keys in the store
    #[arg(long, default_value = "grifo")]
    prefix: String,

    /// Seconds until the store must have answered
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds, allow_negative_numbers = true)]
    timeout: Duration,
}

impl Store {
    pub(crate) fn client(&self) -> Result<Client, Failure> {
        let url = self
            .store
            .as_deref()
            .ok_or_else(|| Failure::Usage("no store is named; give --store URL or set GRIFO_URL".to_owned()))?;
        let builder = loud(Client::builder(url)).prefix(&self.prefix);
        Ok(builder.timeout(self.timeout).connect_timeout(self.timeout).build()?)
    }
}

fn seconds(text: &str) -> Result<Duration, &'static str> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds.ok_or("a number of seconds is wanted, such as 0.05")
}

/// Whoever asks by hand wants to see the error, not an answer in the store's place.
pub(crate) const fn loud(builder: ClientBuilder) -> ClientBuilder {
    builder.on_failure(FailurePolicy::Raise)
}

/// The key that is asked about, and its Limits.
#[derive(Debug, Args)]
pub(crate) struct Target {
    /// Any 1 to 65,536 bytes: a user, an address, a route; put -- before one that begins with a dash
    key: OsString,

    /// The rule, such as '100/min burst 20' or '10/s + 1000/h'; see grifo --help
    #[arg(long, value_name = "LIMIT")]
    limit: String,

    /// Name of the limiter; the key's state belongs to it
    #[arg(long, value_name = "NAME", default_value = "cli")]
    limiter: String,

    #[command(flatten)]
    store: Store,
}

impl Target {
    pub(crate) fn limiter(&self) -> Result<Limiter, Failure> {
        Ok(self.store.client()?.limiter(&self.limiter, self.limit.as_str())?)
    }

    /// On Unix the bytes as they were typed.
    pub(crate) fn key(&self) -> &[u8] {
        self.key.as_encoded_bytes()
    }
}
