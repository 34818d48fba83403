//! What files hold, as they last held it whole.

use std::path::{Path, PathBuf};

use crate::error::Error;

type Read<T> = Box<dyn Fn() -> Result<T, Error> + Send>;

/// What files hold. Who renews them may be half way through, so what cannot be used leaves in place what could.
pub(super) struct Kept<T> {
    value: T,
    what: &'static str,
    files: Vec<PathBuf>,
    read: Read<T>,
    is_same: fn(&T, &T) -> bool,
    /// Whether the log says that it cannot be read anew.
    is_logged: bool,
}

impl<T> Kept<T> {
    /// Reads it. It is called `what` in the log.
    pub(super) fn new(
        what: &'static str,
        files: Vec<PathBuf>,
        read: impl Fn() -> Result<T, Error> + Send + 'static,
        is_same: fn(&T, &T) -> bool,
    ) -> Result<Self, Error> {
        Ok(Self { value: read()?, what, files, read: Box::new(read), is_same, is_logged: false })
    }

    pub(super) const fn value(&self) -> &T {
        &self.value
    }

    /// Reads it anew. Whether it has changed.
    pub(super) fn renew(&mut self) -> bool {
        if self.files.iter().any(|file| can_be_read_once(file)) {
            return false;
        }
        match (self.read)() {
            Ok(value) => self.replace(value),
            Err(error) => {
                if !std::mem::replace(&mut self.is_logged, true) {
                    tracing::warn!(%error, "{} cannot be read anew; what was read before stays in use", self.what);
                }
                false
            }
        }
    }

    fn replace(&mut self, value: T) -> bool {
        let was_logged = std::mem::replace(&mut self.is_logged, false);
        let is_new = !(self.is_same)(&self.value, &value);
        if is_new || was_logged {
            tracing::info!("{} was read anew", self.what);
        }
        if is_new {
            self.value = value;
        }
        is_new
    }
}

/// A pipe, which would keep its reader waiting.
fn can_be_read_once(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|found| !found.is_file() && !found.is_dir())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::error::ErrorKind;

    /// Reads a number; there is no 0.
    fn kept(file: &str) -> (Arc<AtomicU32>, Kept<u32>) {
        let number = Arc::new(AtomicU32::new(1));
        let held = Arc::clone(&number);
        let read = move || match held.load(Ordering::Relaxed) {
            0 => Err(Error::new(ErrorKind::InvalidOptions, "half written")),
            number => Ok(number),
        };
        (number, Kept::new("the number", vec![file.into()], read, u32::eq).unwrap())
    }

    #[test]
    fn what_cannot_be_read_leaves_what_was_read_before() {
        let (number, mut kept) = kept("/no/such/file");
        for (held, changes, wanted) in
            [(1, false, 1), (2, true, 2), (0, false, 2), (0, false, 2), (2, false, 2), (3, true, 3)]
        {
            number.store(held, Ordering::Relaxed);
            assert_eq!((kept.renew(), *kept.value()), (changes, wanted), "{held}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn what_is_no_file_is_read_once() {
        let (number, mut kept) = kept("/dev/null");
        number.store(2, Ordering::Relaxed);
        assert_eq!((kept.renew(), *kept.value()), (false, 1));
    }
}
