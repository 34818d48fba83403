//! A provider of credentials whose answer can be changed, and which counts its calls.

use std::error::Error;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use grifo::{ClientBuilder, Credentials, Limiter};

use crate::server::Server;

/// What a provider does when it is asked.
#[derive(Clone, Debug)]
pub enum Answer {
    /// It yields these.
    Yields(Credentials),
    /// It says why it cannot.
    Fails(String),
    /// It never answers.
    Hangs,
    /// It panics.
    Panics,
}

/// The credentials of the user `app`.
#[must_use]
pub fn app(password: &str) -> Answer {
    Answer::Yields(Credentials::new(password).user("app"))
}

/// The same, good for some time.
#[must_use]
pub fn app_for(password: &str, validity: Duration) -> Answer {
    Answer::Yields(Credentials::new(password).user("app").valid_for(validity))
}

/// Lets a user in with one password, and with no other.
pub fn set_password(server: &Server, user: &str, password: &str) {
    let password = format!(">{password}");
    server.command::<(), _>(&["ACL", "SETUSER", user, "on", "resetpass", &password, "~*", "+@all"]);
}

/// A provider.
#[derive(Clone, Debug)]
pub struct Vault {
    answer: Arc<Mutex<Answer>>,
    calls: Arc<AtomicUsize>,
}

impl Vault {
    /// A provider that begins with an answer.
    #[must_use]
    pub fn new(answer: Answer) -> Self {
        Self { answer: Arc::new(Mutex::new(answer)), calls: Arc::default() }
    }

    /// Gives another answer from now on.
    pub fn set(&self, answer: Answer) {
        *self.answer.lock().unwrap_or_else(PoisonError::into_inner) = answer;
    }

    /// How often it was asked.
    #[must_use]
    pub fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    async fn ask(self) -> Result<Credentials, Box<dyn Error + Send + Sync>> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        let answer = self.answer.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match answer {
            Answer::Yields(credentials) => Ok(credentials),
            Answer::Fails(why) => Err(why.into()),
            Answer::Hangs => std::future::pending().await,
            Answer::Panics => panic!("the vault broke"),
        }
    }

    /// A client that asks it.
    pub fn with(&self, builder: ClientBuilder) -> ClientBuilder {
        let vault = self.clone();
        builder.credentials_provider(move || vault.clone().ask())
    }

    /// A limiter called `case`, of a client that asks it.
    ///
    /// # Panics
    /// When the client cannot be made.
    #[must_use]
    pub fn limiter(&self, builder: ClientBuilder) -> Limiter {
        let client = self.with(builder).build().expect("good options");
        client.limiter("case", "1000000/20000d").expect("good limits")
    }
}
