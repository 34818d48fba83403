//! Credentials that change while a client lives: what yields them, and what it yields.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;

/// What a provider yields, or why it could not.
pub(crate) type Provided = Result<Credentials, Box<dyn Error + Send + Sync>>;
/// Yields credentials whenever it is asked.
pub(crate) type CredentialsProvider = Arc<dyn Fn() -> BoxFuture<'static, Provided> + Send + Sync>;

/// How to log in at a server: what a
/// [`credentials_provider`](crate::ClientBuilder::credentials_provider) yields.
///
/// ```
/// use std::time::Duration;
///
/// let credentials = grifo::Credentials::new("token").user("app").valid_for(Duration::from_secs(900));
/// assert!(!format!("{credentials:?}").contains("token"));
/// ```
#[derive(Clone)]
#[must_use]
pub struct Credentials {
    user: Option<String>,
    password: String,
    valid_for: Option<Duration>,
}

impl Credentials {
    /// A password or token, of the server's default user.
    pub fn new(password: impl Into<String>) -> Self {
        Self { user: None, password: password.into(), valid_for: None }
    }

    /// The user whose password or token it is.
    pub fn user(mut self, user: impl Into<String>) -> Self {
        self.user = Some(user.into());
        self
    }

    /// How long they are good for, from the moment that the provider was asked. In good time before, the provider is asked
    /// again, and connections that are open log in anew. Without it they are renewed with each connection alone.
    pub const fn valid_for(mut self, validity: Duration) -> Self {
        self.valid_for = Some(validity);
        self
    }

    pub(crate) fn user_name(&self) -> Option<&str> {
        self.user.as_deref()
    }

    pub(crate) fn secret(&self) -> &str {
        &self.password
    }

    pub(crate) const fn validity(&self) -> Option<Duration> {
        self.valid_for
    }
}

/// Without the password.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("user", &self.user)
            .field("valid_for", &self.valid_for)
            .finish_non_exhaustive()
    }
}
