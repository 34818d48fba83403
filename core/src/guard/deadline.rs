//! The deadline of a decision, enforced from outside whatever it waits for.

use std::future::Future;

use tokio::runtime::Handle;
use tokio::time::{Instant, timeout_at};

use crate::error::{Error, ErrorKind};

/// Ends the work at the deadline. Without one nothing is waited for, and no runtime is needed.
pub(super) async fn within<T>(
    deadline: Option<Instant>,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let Some(deadline) = deadline else { return work.await };
    if Handle::try_current().is_err() {
        return Err(super::no_runtime());
    }
    match timeout_at(deadline, work).await {
        Ok(outcome) => outcome,
        Err(_) => Err(Error::new(ErrorKind::Timeout, "the store did not answer within the deadline")),
    }
}
