//! Addresses of stores: `redis://[user:pass@]host[:port][/db]`, the same with `rediss://` for TLS, and
//! `redis+unix:///path[?user=…&pass=…&db=…]`.

use std::fmt;
#[cfg(unix)]
use std::path::PathBuf;

use percent_encoding::percent_decode_str;
use redis::RedisConnectionInfo;
use url::Url;

use crate::error::{Error, ErrorKind};

const DEFAULT_PORT: u16 = 6379;
const CLUSTER_SCHEME: &str = "redis+cluster://";
const TLS_CLUSTER_SCHEME: &str = "rediss+cluster://";

/// Whether a URL is that of a cluster.
pub(crate) fn is_cluster(url: &str) -> bool {
    url.starts_with(CLUSTER_SCHEME) || url.starts_with(TLS_CLUSTER_SCHEME)
}

/// The host and port of a server.
pub(super) type Place = (String, u16);

/// Where a server is, and how to log in.
#[derive(Clone)]
pub(crate) struct Address {
    pub(super) endpoint: Endpoint,
    tls: bool,
    user: Option<String>,
    password: Option<String>,
    database: i64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Endpoint {
    Tcp {
        host: String,
        port: u16,
    },
    #[cfg(unix)]
    Unix(PathBuf),
}

impl Address {
    /// # Errors
    /// [`ErrorKind::InvalidOptions`], with a message that does not quote the URL, which may hold a password.
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        if text.contains('#') {
            return Err(invalid("a URL cannot hold a bare '#'; in a user or password write it as %23"));
        }
        let url = Url::parse(text).map_err(|error| {
            invalid(format!("the URL cannot be read: {error}; in a user or password write '/' as %2F, '@' as %40, ':' as %3A, '?' as %3F, '%' as %25"))
        })?;
        match url.scheme() {
            "redis" | "rediss" => Self::from_tcp(&url),
            "redis+unix" => Self::from_unix(&url),
            _ => Err(invalid(
                "the URL's scheme is unknown; there are memory://, redis://, redis+unix://, redis+cluster:// and redis+sentinel://, and with TLS rediss:// and rediss+cluster://",
            )),
        }
    }

    /// The seeds of `redis+cluster://[user:pass@]host[:port][,host[:port]…]`, or of `rediss+cluster://…`, all with the same
    /// credentials.
    /// # Errors
    /// As for [`parse`](Self::parse).
    pub(crate) fn parse_cluster(text: &str) -> Result<Vec<Self>, Error> {
        let (scheme, rest) = match (text.strip_prefix(CLUSTER_SCHEME), text.strip_prefix(TLS_CLUSTER_SCHEME)) {
            (Some(rest), _) => ("redis", rest),
            (_, Some(rest)) => ("rediss", rest),
            _ => return Err(invalid("a cluster's URL is redis+cluster://host,host or rediss+cluster://host,host")),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        if rest.contains('/') {
            return Err(invalid(
                "a cluster has one database, so its URL ends with the hosts; in a password '/' is written as %2F",
            ));
        }
        let (credentials, hosts) =
            rest.rsplit_once('@').map_or(("", rest), |(_, hosts)| rest.split_at(rest.len() - hosts.len()));
        hosts.split(',').map(|host| Self::parse(&format!("{scheme}://{credentials}{host}"))).collect()
    }

    /// The same credentials at another place, with TLS if it is on here.
    pub(super) fn at(&self, host: String, port: u16) -> Self {
        Self { endpoint: Endpoint::Tcp { host, port }, ..self.clone() }
    }

    /// Whether the server is spoken to with TLS, and never without.
    pub(crate) const fn has_tls(&self) -> bool {
        self.tls
    }

    /// The same place with other credentials.
    pub(super) fn with_credentials(self, user: Option<String>, password: Option<String>) -> Self {
        Self { user, password, ..self }
    }

    pub(super) fn host(&self) -> String {
        match &self.endpoint {
            Endpoint::Tcp { host, .. } => host.clone(),
            #[cfg(unix)]
            Endpoint::Unix(_) => String::new(),
        }
    }

    fn from_tcp(url: &Url) -> Result<Self, Error> {
        if url.query().is_some() {
            return Err(invalid(
                "a redis:// URL takes no '?'; options are set beside the URL, and in a password '?' is written as %3F",
            ));
        }
        let host = url.host_str().filter(|host| !host.is_empty()).ok_or_else(|| invalid("the URL names no host"))?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let endpoint = Endpoint::Tcp { host: decode(&host)?, port: url.port().unwrap_or(DEFAULT_PORT) };
        let user = Some(decode(url.username())?).filter(|user| !user.is_empty());
        let password = url.password().map(decode).transpose()?;
        if user.is_some() && password.is_none() {
            return Err(invalid(
                "the URL names a user but no password; a password alone is written redis://:PASSWORD@host",
            ));
        }
        let database = database(url.path().trim_matches('/'))?;
        Ok(Self { endpoint, tls: url.scheme() == "rediss", user, password, database })
    }

    #[cfg(unix)]
    fn from_unix(url: &Url) -> Result<Self, Error> {
        if url.host_str().is_some_and(|host| !host.is_empty()) || url.path().len() < 2 {
            return Err(invalid("a socket's path is absolute: redis+unix:///run/redis.sock"));
        }
        let endpoint = Endpoint::Unix(decode(url.path())?.into());
        let mut address = Self { endpoint, tls: false, user: None, password: None, database: 0 };
        // Not form encoding: a '+' in a password is a '+'.
        for pair in url.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=').unwrap_or((pair, "")) {
                ("user", user) => address.user = Some(decode(user)?),
                ("pass", password) => address.password = Some(decode(password)?),
                ("db", number) => address.database = database(number)?,
                _ => {
                    return Err(invalid(
                        "a redis+unix:// URL takes only ?user=, pass= and db=, joined by '&', which is %26 in a password",
                    ));
                }
            }
        }
        Ok(address)
    }

    #[cfg(not(unix))]
    fn from_unix(_: &Url) -> Result<Self, Error> {
        Err(invalid("this platform has no Unix sockets"))
    }

    pub(crate) fn has_credentials(&self) -> bool {
        self.user.is_some() || self.password.is_some()
    }

    pub(super) fn settings(&self) -> RedisConnectionInfo {
        let mut settings =
            RedisConnectionInfo::default().set_db(self.database).set_lib_name("grifo", env!("CARGO_PKG_VERSION"));
        if let Some(user) = &self.user {
            settings = settings.set_username(user);
        }
        if let Some(password) = &self.password {
            settings = settings.set_password(password);
        }
        settings
    }
}

/// Host and port or path; never user or password.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.endpoint {
            Endpoint::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Endpoint::Tcp { host, port } => write!(f, "{host}:{port}"),
            #[cfg(unix)]
            Endpoint::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({self})")
    }
}

fn decode(text: &str) -> Result<String, Error> {
    let decoded = percent_decode_str(text).decode_utf8();
    decoded.map(Into::into).map_err(|_| invalid("the URL's percent-encoding does not give UTF-8"))
}

fn database(text: &str) -> Result<i64, Error> {
    if text.is_empty() {
        return Ok(0);
    }
    let number = text.parse::<u32>().map_err(|_| invalid("the database in the URL is not a number"))?;
    Ok(number.into())
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOptions, message)
}
