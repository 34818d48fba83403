//! What connections are wrapped with, read anew for each of them: certificates are renewed, and no client is made anew.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio_rustls::TlsConnector;

use super::sources::Sources;
use crate::error::Error;

/// Files that cannot be read in that time hold nobody up: what was read before will do.
const PATIENCE: Duration = Duration::from_millis(100);

/// What the connections of one client are wrapped with.
pub(super) struct Material {
    /// Locked while it is read, by a thread that may wait.
    sources: Mutex<Sources>,
    current: Mutex<Current>,
    handshake_failed: AtomicBool,
}

struct Current {
    connector: Result<TlsConnector, Error>,
    /// Closed when the last reading is over.
    reading: watch::Receiver<()>,
}

impl Material {
    pub(super) fn new(sources: Sources) -> Self {
        let current = Current { connector: sources.connector(), reading: watch::channel(()).1 };
        Self { sources: sources.into(), current: current.into(), handshake_failed: false.into() }
    }

    /// What to wrap a new connection with.
    /// # Errors
    /// [`Connection`](crate::ErrorKind::Connection) if the system trusts nobody.
    pub(super) async fn connector(self: &Arc<Self>) -> Result<TlsConnector, Error> {
        let (mut reading, has_connector) = self.begin_reading();
        let end = reading.changed();
        if has_connector {
            let _ = tokio::time::timeout(PATIENCE, end).await;
        } else {
            let _ = end.await;
        }
        lock(&self.current).connector.clone()
    }

    /// Takes note of a handshake that failed: perhaps the system trusts others by now.
    pub(super) fn doubt(&self) {
        self.handshake_failed.store(true, Ordering::Release);
    }

    /// Reads beside the runtime, which it would hold up, and for all who want to connect meanwhile.
    fn begin_reading(self: &Arc<Self>) -> (watch::Receiver<()>, bool) {
        let mut current = lock(&self.current);
        let is_over = current.reading.has_changed().is_err();
        if is_over {
            let (under_way, reading) = watch::channel(());
            current.reading = reading;
            let material = Arc::clone(self);
            tokio::task::spawn_blocking(move || {
                let _under_way = under_way;
                material.read();
            });
        }
        (current.reading.clone(), current.connector.is_ok())
    }

    fn read(&self) {
        let mut sources = lock(&self.sources);
        if sources.renew(self.handshake_failed.swap(false, Ordering::AcqRel)) {
            let connector = sources.connector();
            lock(&self.current).connector = connector;
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
