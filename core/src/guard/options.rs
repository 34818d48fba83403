//! How the calls of one limiter are guarded.

use std::time::Duration;

use super::Share;
use crate::error::{Error, ErrorKind};

/// A deadline longer than this is a mistake in the unit.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(3600);

/// Who answers when the store cannot do so in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum FailurePolicy {
    /// Allowed. What is behind the limiter is unprotected during the outage.
    #[default]
    Open,
    /// A limiter in memory decides, on this instance's share of the Limits.
    Local,
    /// Denied. The service is as unavailable as the store.
    Closed,
    /// The error is returned.
    Raise,
}

/// How the calls of one limiter are guarded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Options {
    pub(crate) timeout: Duration,
    pub(crate) on_failure: FailurePolicy,
    pub(crate) share: Share,
}

pub(crate) fn check_timeout(name: &str, timeout: Duration) -> Result<(), Error> {
    if timeout.is_zero() || timeout > LONGEST_TIMEOUT {
        return Err(invalid(format!("{name} must be more than zero and at most an hour")));
    }
    Ok(())
}

pub(crate) fn check_deny_cache_max(longest: Duration) -> Result<(), Error> {
    if longest > LONGEST_TIMEOUT {
        return Err(invalid("deny_cache_max must be at most an hour; zero turns the deny cache off"));
    }
    Ok(())
}

pub(crate) fn check_share(share: f64) -> Result<(), Error> {
    if share > 0.0 && share <= 1.0 {
        return Ok(());
    }
    Err(invalid("fallback_share must be more than 0 and at most 1"))
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOptions, message)
}
