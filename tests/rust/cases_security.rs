//! Field cases SE: keys that collide, keys that are huge, and secrets in what is printed or logged.

use std::collections::HashSet;
use std::fmt::Write;
use std::time::{Duration, Instant};

use grifo::{Client, ClientBuilder, Credentials, ErrorKind, FailurePolicy};
use grifo_tests::case::{PATIENCE, Place, eventually, of_each_algorithm, patient, stored_keys};
use grifo_tests::vault::{Answer, Vault};
use grifo_tests::{Listener, Server, TlsFront, server_binary};

/// Pairs of limiter and key that run together if they are joined carelessly.
fn pairs() -> Vec<(String, Vec<u8>)> {
    let mut pairs = HashSet::new();
    for separator in [":", "|", "/", "{", "}", "{}", "\0", "\n", "\r\n", "=", "#", ",", " ", "\\", "%3A"] {
        let [s, a] = [separator, "a"];
        for (limiter, key) in [
            ("21".to_owned(), "1".to_owned()),
            ("2".to_owned(), "11".to_owned()),
            (format!("a{s}b"), "c".to_owned()),
            (a.to_owned(), format!("b{s}c")),
            (format!("a{s}"), a.to_owned()),
            (a.to_owned(), format!("{s}a")),
            (format!("a{s}a"), s.to_owned()),
            (a.to_owned(), format!("{s}{s}")),
            (s.to_owned(), format!("a{s}")),
            (format!("{s}{s}"), a.to_owned()),
        ] {
            pairs.insert((limiter, key.into_bytes()));
        }
    }
    for key in [&b"\xff"[..], b"\xff\xfe", b"\xc3\xa9", "e\u{301}".as_bytes(), "\u{e9}".as_bytes(), b"\0\0"] {
        pairs.insert(("bytes".to_owned(), key.to_vec()));
    }
    // At the length from which keys are hashed, and what a hashed one looks like.
    for length in 62..70 {
        pairs.insert(("long".to_owned(), vec![b'k'; length]));
        pairs.insert(("long".to_owned(), vec![b'='; length]));
    }
    pairs.into_iter().collect()
}

#[tokio::test]
async fn se_01_no_two_limiters_and_keys_share_a_counter() {
    for place in Place::each() {
        let client = place.client();
        for limits in of_each_algorithm("1/20000d") {
            let mut count = 0;
            for allowed in [true, false] {
                for (name, key) in pairs() {
                    let limiter = client.limiter(name.clone(), &*limits).unwrap();
                    let decision = limiter.check(&key).await.unwrap();
                    assert_eq!(decision.allowed, allowed, "{place}, {limits}, {name:?}, {key:?}");
                    count += usize::from(allowed);
                }
            }
            let stored = place.server().map(|server| stored_keys(server).len());
            assert!(stored.is_none_or(|stored| stored % count == 0), "{stored:?} keys of {count}");
        }
    }
}

#[tokio::test]
async fn se_01_algorithms_and_periods_of_one_key_are_kept_apart() {
    for place in Place::each() {
        let client = place.client();
        for period in ["1/19999d", "1/20000d", "1/20001d"] {
            for limits in of_each_algorithm(period) {
                let limiter = client.limiter("case", &*limits).unwrap();
                assert!(limiter.check("k").await.unwrap().allowed, "{place}, {limits}");
                assert!(!limiter.check("k").await.unwrap().allowed, "{place}, {limits}");
            }
        }
    }
}

#[tokio::test]
async fn se_01_prefixes_are_kept_apart() {
    let place = Place::redis();
    for prefix in ["a", "a:", "a:b", "ab", "\u{e9}"] {
        let client = patient(&place.url()).prefix(prefix).build().unwrap();
        assert!(client.limiter("case", "1/20000d").unwrap().check("k").await.unwrap().allowed, "{prefix}");
    }
}

#[tokio::test]
async fn se_03_a_key_that_is_too_long_or_empty_is_refused_at_once() {
    for place in Place::each() {
        let limiter = place.limiter("10/20000d");
        for length in [0, 65_537, 1 << 20, 64 << 20] {
            let key = vec![b'k'; length];
            let started = Instant::now();
            let error = limiter.check(&key).await.unwrap_err();
            assert!(started.elapsed() < Duration::from_millis(50), "{place}, {length}: {:?}", started.elapsed());
            assert_eq!(error.kind(), ErrorKind::InvalidKey, "{place}");
            assert!(error.message().len() < 200 && error.message().contains(&length.to_string()), "{error}");
        }
    }
}

#[tokio::test]
async fn se_03_long_keys_are_stored_short_and_told_apart() {
    let place = Place::redis();
    let server = place.server().unwrap();
    let limiter = place.client().limiter("n".repeat(255), "1/20000d").unwrap();
    let mut key = vec![b'k'; 65_536];
    for index in [0, 1, 64, 65, 32_768, 65_535] {
        key[index] = b'x';
        assert!(limiter.check(&key).await.unwrap().allowed, "{index}");
        assert!(!limiter.check(&key).await.unwrap().allowed, "{index}");
    }
    let longest = stored_keys(server).iter().map(Vec::len).max().unwrap();
    assert!(longest <= 400, "{longest}");
    assert_eq!(stored_keys(server).len(), 6);
}

/// In the spellings that a message could hold: as it is, percent-encoded, in base64, in hexadecimal digits.
const SPELLINGS: [&str; 6] = ["s3cr3t", "%53%33%63", "uznjcjn0", "m2nym3q", "mzy3izd", "533363723374"];

fn holds_no_secret(text: &str, what: &str) {
    let text_in_small = text.to_lowercase();
    for spelling in SPELLINGS {
        assert!(!text_in_small.contains(spelling), "{what}: {text}");
    }
}

/// Everything that can be printed of a client whose store cannot be used, or can.
async fn printed(builder: ClientBuilder) -> String {
    let builder = builder.timeout(Duration::from_millis(500)).connect_timeout(PATIENCE);
    let mut text = format!("{builder:?} {builder:#?} ");
    let client = match builder.build() {
        Ok(client) => client,
        Err(error) => return format!("{error} {error:?}"),
    };
    let limiter = client.limiter("case", "10/20000d").unwrap();
    for policy in [FailurePolicy::Open, FailurePolicy::Local, FailurePolicy::Closed, FailurePolicy::Raise] {
        let guarded = limiter.clone().on_failure(policy);
        write!(text, "{:?} {:?} {guarded:?} ", guarded.check("k").await, guarded.peek("k").await).unwrap();
        if let Err(error) = guarded.check("k").await {
            write!(text, "{error} {} {:?} ", error.message(), std::error::Error::source(&error)).unwrap();
        }
    }
    let (connected, pong) = (client.connect(Duration::from_secs(1)).await, client.ping().await);
    write!(text, "{connected:?} {pong:?} {client:?} {client:#?} {:?}", client.stats()).unwrap();
    client.close();
    write!(text, "{client:?} {:?}", limiter.check("k").await).unwrap();
    text
}

async fn urls_with_secrets(server: &Server, front: &TlsFront) -> Vec<String> {
    let secret = "S3cr3t%23";
    let mut urls: Vec<String> = [
        format!("redis://u:{secret}@127.0.0.1:1"),
        format!("redis://:{secret}@127.0.0.1:1/2"),
        format!("redis://u:{secret}@no-such-host.invalid"),
        format!("rediss://u:{secret}@127.0.0.1:1"),
        format!("rediss+cluster://u:{secret}@127.0.0.1:1"),
        format!("rediss+cluster://u:{secret}@127.0.0.1:1/S3cr3t"),
        format!("rediss://u:{secret}@127.0.0.1:{}", front.port()),
        format!("redis://u:{secret}@127.0.0.1:{}", front.port()),
        format!("rediss://u:{secret}@127.0.0.1:{}", server.port()),
        format!("reddis://u:{secret}@127.0.0.1:1"),
        format!("u:{secret}@127.0.0.1:1"),
        format!("redis://u:{secret}@127.0.0.1:99999"),
        format!("redis://u:{secret}@[::1"),
        format!("redis://u:{secret}@"),
        format!("redis://u:{secret}"),
        format!("redis://{secret}@127.0.0.1:1"),
        format!("redis://127.0.0.1:1?password={secret}"),
        format!("redis+unix:///no/such/socket?pass={secret}"),
        format!("redis+unix:///no/such/socket?password={secret}"),
        format!("redis+unix://{secret}@h/socket"),
        format!("redis+sentinel://u:{secret}@127.0.0.1:1/main"),
        format!("redis+sentinel://u:{secret}@127.0.0.1:1"),
        format!("redis+sentinel://u:{secret}@{}/main", server.addr()),
        format!("redis+sentinel://{secret}@127.0.0.1:1/main"),
        format!("redis+sentinel://127.0.0.1:1/main?password={secret}"),
        format!("memory://{secret}"),
    ]
    .into();
    urls.push("redis://u:S3cr3t#@127.0.0.1:1".to_owned());
    urls.push("redis://u:S3cr3t/@127.0.0.1:1".to_owned());
    urls.push("redis+sentinel://u:S3cr3t#@127.0.0.1:1/main".to_owned());
    urls.push("redis+sentinel://u:S3cr3t/@127.0.0.1:1/main".to_owned());
    urls.push("redis://u:%ff@S3cr3t@127.0.0.1:1".to_owned());
    urls.push(format!("redis://:{secret}@{}", server.addr()));
    urls.push(format!("redis://:{secret}x@{}", server.addr()));
    urls.push(format!("redis://u:{secret}@{}", server.addr()));
    urls
}

#[tokio::test]
async fn se_05_no_secret_is_printed_or_logged() {
    let server = Server::start_with(server_binary::installed()[0].kind, &["--requirepass", "S3cr3t#"]);
    let front = TlsFront::start(server.addr());
    let listener = Listener::default();
    let _guard = tracing::subscriber::set_default(listener.clone());
    for url in urls_with_secrets(&server, &front).await {
        let what = url.replace("S3cr3t", "…");
        holds_no_secret(&printed(Client::builder(&url)).await, &what);
        holds_no_secret(&listener.text(), &format!("the log of {what}"));
    }
    assert!(!listener.text().is_empty(), "nothing was logged, so nothing was shown");
}

/// What a provider yields, and what it says when it fails: perhaps words that hold what it yielded before.
#[tokio::test]
async fn se_05_no_secret_of_a_provider_is_printed_or_logged() {
    let secret = "S3cr3t#";
    let server = Server::start_with(server_binary::installed()[0].kind, &["--requirepass", secret]);
    let listener = Listener::default();
    let _guard = tracing::subscriber::set_default(listener.clone());
    let yields = |password: &str| Answer::Yields(Credentials::new(password).valid_for(Duration::from_secs(1)));
    for (answer, url) in [
        (yields(secret), server.url()),
        (yields("S3cr3t but wrong"), server.url()),
        (yields(secret), "redis://127.0.0.1:1".to_owned()),
        (Answer::Fails("the vault is sealed".to_owned()), server.url()),
    ] {
        holds_no_secret(&format!("{answer:?} {answer:#?}"), "the credentials");
        holds_no_secret(&printed(Vault::new(answer).with(Client::builder(&url))).await, &url);
    }
    let warnings = || listener.text().matches("could not be renewed").count();
    for words in [format!("token {secret} has expired"), format!("GET /login?token=S3cr3t%23&{}", "x".repeat(1000))] {
        let vault = Vault::new(yields(secret));
        let client = vault.with(Client::builder(server.url())).build().unwrap();
        client.connect(PATIENCE).await.unwrap();
        vault.set(Answer::Fails(words));
        // It is renewed, and the connection made anew, in vain.
        let before = warnings();
        eventually("a line in the log", PATIENCE, async || warnings() > before).await;
        server.command::<usize, _>(&["CLIENT", "KILL", "TYPE", "normal"]);
        eventually("an error", PATIENCE, async || {
            let outcome = client.connect(Duration::from_millis(200)).await;
            holds_no_secret(&format!("{outcome:?}"), "the error");
            outcome.is_err_and(|error| error.kind() == ErrorKind::Auth)
        })
        .await;
    }
    holds_no_secret(&listener.text(), "the log");
}

#[tokio::test]
async fn se_05_long_words_of_a_provider_are_cut() {
    let server = Server::start_default();
    let vault = Vault::new(Answer::Fails(format!("no\nway {}", "x".repeat(10_000))));
    let client = vault.with(Client::builder(server.url())).build().unwrap();
    let error = client.connect(Duration::from_secs(1)).await.unwrap_err();
    assert!(error.message().contains("no way") && error.message().len() < 400, "{error}");
}

#[test]
fn se_05_a_builder_prints_no_secret() {
    for url in ["redis://u:S3cr3t%23@127.0.0.1:1", "redis+unix:///run/s?pass=S3cr3t%23", "redis://u:S3cr3t#@h"] {
        let builder = Client::builder(url).sentinel_user("S3cr3t%23").sentinel_password("S3cr3t%23");
        holds_no_secret(&format!("{builder:?} {builder:#?}"), "the builder");
    }
}

#[tokio::test]
async fn se_03_keys_are_not_logged() {
    let listener = Listener::default();
    let _guard = tracing::subscriber::set_default(listener.clone());
    let limiter = Client::open("redis://127.0.0.1:1").unwrap().limiter("case", "10/20000d").unwrap();
    assert!(limiter.check("S3cr3t\nkey").await.unwrap().degraded());
    limiter.check("S3cr3t".repeat(20_000)).await.unwrap_err();
    holds_no_secret(&listener.text(), "the log");
}
