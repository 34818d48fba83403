//! Field case CN-08: passwords with special characters, IPv6 and Unix sockets.

use std::net::Ipv6Addr;

use grifo::{Client, ErrorKind};
use grifo_tests::case::patient;
use grifo_tests::{Server, server_binary};

const PASSWORD: &str = "p#/@:%?&+= \u{e9}";
const ENCODED: &str = "p%23%2F%40%3A%25%3F%26%2B%3D%20%C3%A9";

fn with_password(password: &str) -> Server {
    Server::start_with(server_binary::installed()[0].kind, &["--requirepass", password])
}

async fn connects(url: &str) {
    let client = patient(url).build().unwrap_or_else(|error| panic!("{url}: {error}"));
    let limiter = client.limiter("case", "10/20000d").unwrap();
    let decision = limiter.check(url).await.unwrap_or_else(|error| panic!("{url}: {error}"));
    assert!(decision.allowed && !decision.degraded(), "{url}");
}

#[tokio::test]
async fn cn_08_any_password_can_be_written_percent_encoded() {
    let server = with_password(PASSWORD);
    connects(&format!("redis://:{ENCODED}@{}", server.addr())).await;
    connects(&format!("redis://default:{ENCODED}@{}/0", server.addr())).await;
    connects(&format!("redis://default:{ENCODED}@localhost:{}/3", server.port())).await;
    connects(&format!("{}?pass={ENCODED}", server.unix_url())).await;
    connects(&format!("{}?user=default&pass={ENCODED}&db=2", server.unix_url())).await;
}

#[tokio::test]
async fn cn_08_a_plus_in_a_password_is_a_plus() {
    let server = with_password("a+b");
    connects(&format!("redis://:a+b@{}", server.addr())).await;
    connects(&format!("{}?pass=a+b", server.unix_url())).await;
}

#[tokio::test]
async fn cn_08_users_have_names_with_special_characters_too() {
    let server = Server::start_default();
    server.command::<(), _>(&["ACL", "SETUSER", "a@b:c/d", "on", ">s%cret", "~*", "+@all"]);
    connects(&format!("redis://a%40b%3Ac%2Fd:s%25cret@{}", server.addr())).await;
    connects(&format!("{}?user=a%40b%3Ac%2Fd&pass=s%25cret", server.unix_url())).await;
}

#[tokio::test]
async fn cn_08_ipv6_hosts_stand_in_brackets() {
    if std::net::TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_err() {
        println!("this machine has no IPv6");
        return;
    }
    let args = ["--bind", "127.0.0.1", "::1", "--requirepass", PASSWORD];
    let server = Server::start_with(server_binary::installed()[0].kind, &args);
    connects(&format!("redis://:{ENCODED}@[::1]:{}", server.port())).await;
    connects(&format!("redis://:{ENCODED}@[0:0:0:0:0:0:0:1]:{}/1", server.port())).await;
}

#[tokio::test]
async fn cn_08_databases_are_kept_apart() {
    let server = Server::start_default();
    for (database, path) in [(0, ""), (0, "/"), (5, "/5")] {
        let client = patient(&format!("{}{path}", server.url())).build().unwrap();
        let limiter = client.limiter("case", "10/20000d").unwrap();
        let before = limiter.peek("k").await.unwrap().remaining;
        assert_eq!(before, if path == "/" { 9 } else { 10 }, "{path}");
        assert!(limiter.check("k").await.unwrap().allowed);
        let keyspace: String = server.command(&["INFO", "keyspace"]);
        // The state, and the record of partitions.
        assert!(keyspace.contains(&format!("db{database}:keys=2")), "{path}: {keyspace}");
    }
}

#[test]
fn cn_08_what_cannot_be_read_says_what_to_encode_and_quotes_no_secret() {
    for (url, hint) in [
        ("redis://:S3cr#t@host:1", "%23"),
        ("redis://:S3cr#t@host", "%23"),
        ("redis://user:S3cr/t@host:1", "%2F"),
        ("redis://:S3cr/t@host", "%2F"),
        ("redis://:S3cr?t@host", "%3F"),
        ("redis://S3cr?t@host", "%3F"),
        ("redis://:a:S3cr/t@host", "%3A"),
        ("redis://S3crt@host", "redis://:PASSWORD@host"),
        ("redis+unix:///run/s?pass=S3cr&t", "%26"),
        ("redis+unix:///run/s?password=S3crt", "pass="),
        ("redis+unix://host/run/s?pass=S3crt", "redis+unix:///"),
        ("redis+unix://?pass=S3crt", "redis+unix:///"),
        ("http://:S3crt@host", "redis://"),
        ("redis:S3crt@host", "host"),
        ("S3crt@host", ""),
        ("redis://:S3crt%FF@host", "UTF-8"),
        ("redis://:S3crt@host/S3crt", "number"),
        ("redis://:S3crt@host:S3crt", "port"),
        ("redis://:S3crt@host/-1", "number"),
        ("memory://:S3crt@host", "memory://"),
        ("memory:S3crt", "memory://"),
        ("", ""),
    ] {
        let error = Client::open(url).expect_err(url);
        assert_eq!(error.kind(), ErrorKind::InvalidOptions, "{url}");
        assert!(error.message().contains(hint), "{url}: {error}");
        assert!(!format!("{error} {error:?}").to_lowercase().contains("s3cr"), "{url}: {error}");
    }
}

#[tokio::test]
async fn cn_08_wrong_credentials_are_an_auth_error_that_says_what_to_do() {
    let server = with_password("right");
    let open = Server::start_default();
    for (url, hint) in [
        (server.url(), "credentials"),
        (format!("redis://:wrong@{}", server.addr()), "refused"),
        (format!("redis://nobody:right@{}", server.addr()), "refused"),
        (format!("{}?pass=wrong", server.unix_url()), "refused"),
        (format!("redis://:needless@{}", open.addr()), "password"),
    ] {
        let error = patient(&url).build().unwrap().connect(grifo_tests::case::PATIENCE).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Auth, "{url}: {error}");
        assert!(error.message().contains(hint), "{url}: {error}");
        for secret in ["wrong", "right", "needless"] {
            assert!(!error.message().contains(secret), "{url}: {error}");
        }
    }
}
