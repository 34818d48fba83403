//! The deadline of a decision, enforced from outside whatever it waits for.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use tokio::runtime::Handle;
use tokio::time::{Instant, timeout_at};

use crate::error::{Error, ErrorKind, late};

/// Ends the work at the deadline.
pub(super) async fn within<T>(deadline: Instant, work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    check_runtime()?;
    match timeout_at(deadline, work).await {
        Ok(outcome) => outcome,
        Err(_) => Err(late()),
    }
}

/// What `work` gives, unless `end` comes first.
pub(crate) async fn first<T, E>(work: impl Future<Output = T>, end: impl Future<Output = E>) -> Option<T> {
    let (mut work, mut end) = (pin!(work), pin!(end));
    poll_fn(|context| match work.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => end.as_mut().poll(context).map(|_| None),
    })
    .await
}

/// Whether there is a runtime for timers and tasks.
pub(super) fn check_runtime() -> Result<(), Error> {
    // Of the two, the first is the cheaper question.
    if tokio::task::try_id().is_some() || Handle::try_current().is_ok() { Ok(()) } else { Err(no_runtime()) }
}

pub(crate) fn no_runtime() -> Error {
    Error::new(ErrorKind::Internal, "call this from within a Tokio runtime with its timers and I/O enabled")
}
