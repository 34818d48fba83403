//! The one error type: what went wrong, as a kind with a stable number, and a message that says what to do.

use std::convert::Infallible;
use std::fmt;

/// What went wrong. The same names and numbers in every language.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A limit that cannot be: zero, too large to be exact, misspelt.
    InvalidLimit,
    /// A key that is empty or longer than 65,536 bytes.
    InvalidKey,
    /// A cost that is not a whole number of 0 or more.
    InvalidCost,
    /// A URL, a limiter's name or an option that cannot be.
    InvalidOptions,
    /// The client was closed.
    Closed,
    /// The store did not answer within the deadline.
    Timeout,
    /// The store could not be reached, or the connection was lost.
    Connection,
    /// The store refused the credentials.
    Auth,
    /// The store's user lacks a right that grifo needs.
    Permission,
    /// The cluster cannot serve the key now.
    Cluster,
    /// The script failed in the store.
    Script,
    /// The store answered something that is no answer.
    Protocol,
    /// The store answered that it cannot serve now: loading, busy, out of memory. Or too many callers are waiting.
    Unavailable,
    /// A fault of grifo itself, or no Tokio runtime where one is needed. An error under every policy.
    Internal,
}

impl ErrorKind {
    /// Every kind, in the order of their codes.
    pub const ALL: [Self; 14] = [
        Self::InvalidLimit,
        Self::InvalidKey,
        Self::InvalidCost,
        Self::InvalidOptions,
        Self::Closed,
        Self::Timeout,
        Self::Connection,
        Self::Auth,
        Self::Permission,
        Self::Cluster,
        Self::Script,
        Self::Protocol,
        Self::Unavailable,
        Self::Internal,
    ];

    /// The stable number of this kind: 1 and up; 0 means success in C. A number is never given to another kind.
    ///
    /// ```
    /// assert_eq!(grifo::ErrorKind::InvalidLimit.code(), 1);
    /// ```
    #[must_use]
    pub const fn code(self) -> i32 {
        match self {
            Self::InvalidLimit => 1,
            Self::InvalidKey => 2,
            Self::InvalidCost => 3,
            Self::InvalidOptions => 4,
            Self::Closed => 5,
            Self::Timeout => 6,
            Self::Connection => 7,
            Self::Auth => 8,
            Self::Permission => 9,
            Self::Cluster => 10,
            Self::Script => 11,
            Self::Protocol => 12,
            Self::Unavailable => 13,
            Self::Internal => 14,
        }
    }

    /// The name of this kind, the same in every language.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::InvalidLimit => "InvalidLimit",
            Self::InvalidKey => "InvalidKey",
            Self::InvalidCost => "InvalidCost",
            Self::InvalidOptions => "InvalidOptions",
            Self::Closed => "Closed",
            Self::Timeout => "Timeout",
            Self::Connection => "Connection",
            Self::Auth => "Auth",
            Self::Permission => "Permission",
            Self::Cluster => "Cluster",
            Self::Script => "Script",
            Self::Protocol => "Protocol",
            Self::Unavailable => "Unavailable",
            Self::Internal => "Internal",
        }
    }

    /// Whether the failure policy answers for it, when a store brings it up: [`InvalidOptions`](Self::InvalidOptions) are
    /// then those that do not fit what the store has recorded.
    pub(crate) const fn is_of_the_store(self) -> bool {
        !matches!(self, Self::InvalidLimit | Self::InvalidKey | Self::InvalidCost | Self::Closed | Self::Internal)
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// An error: its [kind](ErrorKind) and a message that says what was wrong and what to do.
/// Secrets appear in none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    message: String,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// What went wrong.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The stable number of the [kind](Self::kind).
    #[must_use]
    pub const fn code(&self) -> i32 {
        self.kind.code()
    }

    /// What was wrong, and what to do.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }
}

/// The answer of a client that was closed.
pub(crate) fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the client was closed; make another")
}

/// The answer when the time is up.
pub(crate) fn late() -> Error {
    Error::new(ErrorKind::Timeout, "the store did not answer within the deadline")
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind, self.message)
    }
}

impl std::error::Error for Error {}

impl From<Infallible> for Error {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}
