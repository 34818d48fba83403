//! A master that sentinels watch, and how it is found.
//!
//! All sentinels are asked at once, over connections made for it, and the first one counts whose master says itself that it
//! is one: a sentinel that was cut off may still name the old one. They are asked whenever there is no live connection to a
//! master, so each begins with their word, and whenever something went wrong on one. Their news are not subscribed to.
//!
//! What is accepted: between the end of a master and the first call that fails on it, a call is answered by the old one. Its
//! charges are lost, as all that a failover has not replicated; and a peek, or a denial, may be one of a master that has
//! become a replica. That ends soon: sentinels cut the connections of a master that they demote.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::{Cmd, FromRedisValue, Value, cmd};
use tokio::time::{Instant, timeout, timeout_at};

use super::access::Access;
use super::address::{Address, Place};
use super::hello::Hello;
use super::node::Node;
use super::reply::Failure;
use super::sentinel_address::SentinelAddress;
use crate::error::{Error, ErrorKind};

/// How long a named master may take to say that it is one, before the sentinel is asked whether it still is; and how much
/// longer the others may take once a sentinel has answered.
const PATIENCE: Duration = Duration::from_millis(500);

/// The sentinels of a master.
#[derive(Debug)]
pub(crate) struct Sentinels {
    address: SentinelAddress,
    access: Arc<Access>,
}

/// Why a sentinel led to no master.
struct Refusal {
    error: Error,
    /// Whether the sentinel has answered, whatever it said.
    answered: bool,
}

impl Sentinels {
    /// `access` is that of the sentinels, not of the servers that they name.
    pub(crate) fn new(address: SentinelAddress, access: Access) -> Self {
        Self { address, access: Arc::new(access) }
    }

    /// The address of a server that the sentinels name.
    pub(super) fn server_at(&self, host: String, port: u16) -> Address {
        self.address.server.at(host, port)
    }

    /// Where the master is. `node_at` gives the node of a place, the same one for all sentinels that name it.
    pub(super) async fn find_master<F>(&self, node_at: F) -> Result<Place, Error>
    where
        F: Fn(Place) -> Result<Arc<Node>, Error> + Sync,
    {
        let mut asked: FuturesUnordered<_> =
            self.address.sentinels.iter().map(|sentinel| self.master_by(sentinel, &node_at)).collect();
        let mut end = Instant::now() + self.access.connect_timeout;
        let mut most_telling: Option<Error> = None;
        while let Ok(Some(outcome)) = timeout_at(end, asked.next()).await {
            let refusal = match outcome {
                Ok(place) => return Ok(place),
                Err(refusal) => refusal,
            };
            if refusal.answered {
                // Those that hang are not to hold up the next attempt.
                end = end.min(Instant::now() + PATIENCE);
            }
            if most_telling.as_ref().is_none_or(|other| tells(&refusal.error) > tells(other)) {
                most_telling = Some(refusal.error);
            }
        }
        let late =
            || Error::new(ErrorKind::Timeout, "neither a sentinel nor the master that it names answered in time");
        Err(most_telling.unwrap_or_else(late))
    }

    /// The master according to one sentinel, once it has said itself that it is one.
    async fn master_by<F>(&self, sentinel: &Address, node_at: &F) -> Result<Place, Refusal>
    where
        F: Fn(Place) -> Result<Arc<Node>, Error> + Sync,
    {
        let sentinel = Node::new(sentinel.clone(), Arc::clone(&self.access));
        loop {
            let place = self.ask(&sentinel).await?;
            let node = node_at(place.clone()).map_err(after_answer)?;
            // One that hangs may be replaced meanwhile.
            if let Ok(outcome) = timeout(PATIENCE, confirm(&node)).await {
                return outcome.map(|()| place).map_err(after_answer);
            }
        }
    }

    /// Where a sentinel believes the master to be.
    async fn ask(&self, sentinel: &Node) -> Result<Place, Refusal> {
        let answer = async { sentinel.link().await?.ask(&self.question()).await.map_err(Failure::into_error) };
        let value = answer.await.map_err(|error| {
            let answered = !matches!(error.kind(), ErrorKind::Connection | ErrorKind::Timeout);
            Refusal { error: self.explain(&error, sentinel), answered }
        })?;
        if value == Value::Nil {
            return Err(after_answer(self.unknown_name()));
        }
        let unreadable = || Error::new(ErrorKind::Protocol, "the sentinel's answer is not of the expected form");
        Place::from_redis_value(value).map_err(|_| after_answer(unreadable()))
    }

    fn question(&self) -> Cmd {
        let mut command = cmd("SENTINEL");
        command.arg("GET-MASTER-ADDR-BY-NAME").arg(&self.address.master_name);
        command
    }

    fn unknown_name(&self) -> Error {
        let name = self.address.master_name.escape_debug();
        let message = format!("no sentinel knows a master '{name}'; its name stands at the end of the URL");
        Error::new(ErrorKind::Unavailable, message)
    }

    /// The errors of a server say what to do for a server.
    fn explain(&self, error: &Error, sentinel: &Node) -> Error {
        let address = sentinel.address();
        let message = match error.kind() {
            ErrorKind::Auth if address.settings().password().is_none() => {
                format!("the sentinel at {address} wants a password; give it as the option sentinel_password")
            }
            ErrorKind::Auth => {
                format!("the sentinel at {address} refused the options sentinel_user and sentinel_password")
            }
            ErrorKind::Permission => {
                format!("the user of the sentinel at {address} lacks a right: +sentinel|get-master-addr-by-name")
            }
            ErrorKind::Script => format!(
                "the server at {address} is no sentinel; a redis+sentinel:// URL names sentinels, and their port is 26379 unless it says otherwise"
            ),
            _ => return error.clone(),
        };
        Error::new(error.kind(), message)
    }
}

fn after_answer(error: Error) -> Refusal {
    Refusal { error, answered: true }
}

/// Makes sure that a server is a master: a sentinel that was cut off is the last to know.
async fn confirm(node: &Node) -> Result<(), Error> {
    match Hello::ask(&*node.link().await?).await?.get("role").as_deref() {
        Some("master") => Ok(()),
        _ => {
            let message = format!("the sentinels name {} as the master, which it is not", node.address());
            Err(Error::new(ErrorKind::Unavailable, message))
        }
    }
}

/// How much an error tells: what somebody must mend comes before what may pass.
fn tells(error: &Error) -> u8 {
    match error.kind() {
        ErrorKind::Timeout => 0,
        ErrorKind::Connection => 1,
        ErrorKind::Unavailable => 2,
        _ => 3,
    }
}
