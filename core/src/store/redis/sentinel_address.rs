//! The address of a master that sentinels watch: `redis+sentinel://[user:pass@]host[:port][,host[:port]…]/master-name[/db]`.

use percent_encoding::percent_decode_str;

use super::address::Address;
use crate::error::{Error, ErrorKind};

pub(crate) const SENTINEL_SCHEME: &str = "redis+sentinel://";
const SENTINEL_PORT: u16 = 26379;

/// Where the sentinels are, and what their servers have in common.
#[derive(Debug)]
pub(crate) struct SentinelAddress {
    pub(super) sentinels: Vec<Address>,
    pub(super) master_name: String,
    /// User, password and database of the servers that the sentinels name; its place means nothing.
    pub(super) server: Address,
}

impl SentinelAddress {
    /// # Errors
    /// [`ErrorKind::InvalidOptions`], with a message that does not quote the URL, which may hold a password.
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        let rest = text.strip_prefix(SENTINEL_SCHEME).ok_or_else(no_master)?;
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        if path.contains('@') {
            return Err(invalid("in a user or password '/' is written as %2F and '@' as %40"));
        }
        if path.contains(['?', '#']) {
            return Err(invalid(
                "a redis+sentinel:// URL takes no '?' and no '#'; options are set beside the URL, and in a password they are written as %3F and %23",
            ));
        }
        let (credentials, hosts) = authority
            .rsplit_once('@')
            .map_or(("", authority), |(_, hosts)| authority.split_at(authority.len() - hosts.len()));
        let (master_name, database) = split_path(path)?;
        let sentinels = hosts.split(',').map(sentinel).collect::<Result<Vec<_>, _>>()?;
        let server = Address::parse(&format!("redis://{credentials}localhost/{database}"))?;
        Ok(Self { sentinels, master_name, server })
    }

    pub(crate) const fn server(&self) -> &Address {
        &self.server
    }

    /// With the sentinels' own credentials; those in the URL are for the servers that they name.
    pub(crate) fn with_sentinel_credentials(mut self, user: Option<&str>, password: Option<&str>) -> Self {
        let own = |text: Option<&str>| text.map(str::to_owned);
        let log_in = |sentinel: Address| sentinel.with_credentials(own(user), own(password));
        self.sentinels = self.sentinels.into_iter().map(log_in).collect();
        self
    }
}

/// The name of the master, and the database or nothing.
fn split_path(path: &str) -> Result<(String, &str), Error> {
    let path = path.strip_suffix('/').unwrap_or(path);
    let (name, database) = path.split_once('/').unwrap_or((path, ""));
    if name.is_empty() {
        return Err(no_master());
    }
    if database.contains('/') {
        return Err(invalid("behind the name of the master there may be a database number, and nothing more"));
    }
    let name = percent_decode_str(name).decode_utf8();
    let name = name.map_err(|_| invalid("the URL's percent-encoding does not give UTF-8"))?;
    Ok((name.into_owned(), database))
}

fn sentinel(host: &str) -> Result<Address, Error> {
    if host.is_empty() {
        return Err(invalid("the URL names no host between two commas, or none at all"));
    }
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| !port.is_empty() && !port.ends_with(']'));
    let host = host.strip_suffix(':').unwrap_or(host);
    Address::parse(&if has_port { format!("redis://{host}") } else { format!("redis://{host}:{SENTINEL_PORT}") })
}

fn no_master() -> Error {
    invalid("the URL names no master; it stands behind the sentinels: redis+sentinel://host,host/master-name")
}

fn invalid(message: &str) -> Error {
    Error::new(ErrorKind::InvalidOptions, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> SentinelAddress {
        SentinelAddress::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn hosts_and_ports_are_read() {
        for (hosts, wanted) in [
            ("a", vec!["a:26379"]),
            ("a:1", vec!["a:1"]),
            ("a:", vec!["a:26379"]),
            ("a,b:2,10.0.0.3", vec!["a:26379", "b:2", "10.0.0.3:26379"]),
            ("[::1],[fe80::2]:7", vec!["[::1]:26379", "[fe80::2]:7"]),
            ("u:p@a,b", vec!["a:26379", "b:26379"]),
        ] {
            let sentinels = parse(&format!("redis+sentinel://{hosts}/main")).sentinels;
            assert_eq!(sentinels.iter().map(ToString::to_string).collect::<Vec<_>>(), wanted, "{hosts}");
        }
    }

    #[test]
    fn the_name_of_the_master_and_the_database_are_read() {
        for (path, name, database) in [
            ("main", "main", 0),
            ("main/", "main", 0),
            ("main/3", "main", 3),
            ("main/3/", "main", 3),
            ("my%2Fmain%20%C3%A9", "my/main \u{e9}", 0),
            ("a,b:c", "a,b:c", 0),
        ] {
            let address = parse(&format!("redis+sentinel://a,b/{path}"));
            assert_eq!((address.master_name.as_str(), address.server.settings().db()), (name, database), "{path}");
        }
    }

    #[test]
    fn the_credentials_in_the_url_are_those_of_the_servers() {
        let address = parse("redis+sentinel://us%40er:p%2F%3A@a,b/main");
        let (server, sentinel) = (address.server.settings(), address.sentinels[1].settings());
        assert_eq!((server.username(), server.password()), (Some("us@er"), Some("p/:")));
        assert_eq!((sentinel.username(), sentinel.password()), (None, None));
        let sentinel = address.with_sentinel_credentials(Some("s"), Some("q")).sentinels[1].settings();
        assert_eq!((sentinel.username(), sentinel.password()), (Some("s"), Some("q")));
    }

    #[test]
    fn what_cannot_be_is_refused_with_a_hint_and_without_a_secret() {
        for (url, hint) in [
            ("redis+sentinel://a", "names no master"),
            ("redis+sentinel://a/", "names no master"),
            ("redis+sentinel://a//3", "names no master"),
            ("redis+sentinel://", "names no master"),
            ("redis+sentinel:///main", "names no host"),
            ("redis+sentinel://a,,b/main", "names no host"),
            ("redis+sentinel://:S3cr3t@/main", "names no host"),
            ("redis+sentinel://a/main/x", "not a number"),
            ("redis+sentinel://a/main/-1", "not a number"),
            ("redis+sentinel://a/main/1/2", "nothing more"),
            ("redis+sentinel://a:x/main", "port"),
            ("redis+sentinel://a:99999/main", "port"),
            ("redis+sentinel://::1/main", ""),
            ("redis+sentinel://S3cr3t@a/main", "redis://:PASSWORD@host"),
            ("redis+sentinel://:S3cr/3t@a/main", "%2F"),
            ("redis+sentinel://:S3cr?3t@a/main", "%3F"),
            ("redis+sentinel://:S3cr#3t@a/main", "%23"),
            ("redis+sentinel://:S3cr3t%FF@a/main", "UTF-8"),
            ("redis+sentinel://a/main%FF", "UTF-8"),
            ("redis+sentinel://a/main?sentinel_password=S3cr3t", "beside the URL"),
        ] {
            let error = SentinelAddress::parse(url).expect_err(url);
            assert_eq!(error.kind(), ErrorKind::InvalidOptions, "{url}");
            assert!(error.message().contains(hint), "{url}: {error}");
            assert!(!error.message().contains("S3cr"), "{url}: {error}");
        }
    }
}
