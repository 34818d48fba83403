//! Options that several subcommands share.

use std::ffi::OsString;
use std::path::PathBuf;
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
    #[arg(long, visible_alias = "url", value_name = "URL", env = "GRIFO_URL", hide_env_values = true)]
    store: Option<String>,

    /// User of the sentinels, for redis+sentinel://
    #[arg(long, value_name = "NAME", env = "GRIFO_SENTINEL_USER")]
    sentinel_user: Option<String>,

    /// Password of the sentinels; others can see it here, but not in the environment
    #[arg(long, value_name = "PASSWORD", env = "GRIFO_SENTINEL_PASSWORD", hide_env_values = true)]
    sentinel_password: Option<String>,

    /// Beginning of all keys in the store
    #[arg(long, default_value = "grifo")]
    prefix: String,

    /// Seconds until the store must have answered
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds, allow_negative_numbers = true)]
    timeout: Duration,

    #[command(flatten)]
    tls: Tls,
}

const TLS_HEADING: &str = "TLS, for rediss:// and rediss+cluster://";

/// How a store is spoken to whose address asks for TLS.
#[derive(Debug, Args)]
pub(crate) struct Tls {
    /// Trust the authorities in this PEM file instead of those that the system trusts
    #[arg(long, help_heading = TLS_HEADING, value_name = "FILE")]
    tls_ca_file: Option<PathBuf>,

    /// Show this certificate (PEM) to a server that wants one
    #[arg(long, help_heading = TLS_HEADING, value_name = "FILE", requires = "tls_key")]
    tls_certificate: Option<PathBuf>,

    /// Private key (PEM) of --tls-certificate
    #[arg(long, help_heading = TLS_HEADING, value_name = "FILE", requires = "tls_certificate")]
    tls_key: Option<PathBuf>,

    /// Name or address in the server's certificate, where it is not the host of the URL
    #[arg(long, help_heading = TLS_HEADING, value_name = "NAME")]
    tls_server_name: Option<String>,

    /// Dangerous: take any server for the right one, whatever its certificate
    #[arg(long, help_heading = TLS_HEADING)]
    tls_insecure: bool,
}

impl Tls {
    pub(crate) fn set(&self, mut builder: ClientBuilder) -> ClientBuilder {
        if let Some(file) = &self.tls_ca_file {
            builder = builder.tls_ca_file(file);
        }
        if let Some(file) = &self.tls_certificate {
            builder = builder.tls_certificate(file);
        }
        if let Some(file) = &self.tls_key {
            builder = builder.tls_key(file);
        }
        if let Some(name) = &self.tls_server_name {
            builder = builder.tls_server_name(name);
        }
        builder.tls_insecure(self.tls_insecure)
    }
}

impl Store {
    pub(crate) fn client(&self) -> Result<Client, Failure> {
        let url = self
            .store
            .as_deref()
            .ok_or_else(|| Failure::Usage("no store is named; give --store URL or set GRIFO_URL".to_owned()))?;
        // Less, so that it is told why there is no connection rather than that there is no answer.
        let connecting = self.timeout.mul_f64(0.9);
        let mut builder = loud(Client::builder(url)).prefix(&self.prefix);
        if let Some(user) = &self.sentinel_user {
            builder = builder.sentinel_user(user);
        }
        if let Some(password) = &self.sentinel_password {
            builder = builder.sentinel_password(password);
        }
        Ok(self.tls.set(builder.timeout(self.timeout).connect_timeout(connecting)).build()?)
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
