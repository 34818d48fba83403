//! What a user is told when TLS fails, and what the failures leave behind.

use std::io::{Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use grifo::Error;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use super::*;

/// What the first call meets. Under the default policy the same is answered in the store's place.
async fn failure(builder: ClientBuilder) -> Error {
    let client = builder.connect_timeout(PATIENCE).build().unwrap_or_else(|error| panic!("{error}"));
    let limiter = client.limiter("case", "10/20000d").unwrap();
    let error = limiter.check("k").await.unwrap_err();
    let answered = limiter.on_failure(FailurePolicy::Open).check("k").await.unwrap();
    assert!(answered.allowed && answered.reason == Some(error.kind()), "{error}: {answered:?}");
    error
}

async fn is_told(builder: ClientBuilder, hints: &[&str]) {
    let error = failure(builder).await;
    assert_eq!(error.kind(), ErrorKind::Connection, "{error}");
    for hint in hints {
        assert!(error.message().contains(hint), "not {hint:?}: {error}");
    }
}

#[tokio::test]
async fn a_certificate_that_cannot_be_trusted_is_explained() {
    let server = Server::start_default();
    let (front, stranger) = (TlsFront::start(server.addr()), TlsFront::start(server.addr()));
    let port = front.port().to_string();
    is_told(patient(&front.url()), &["localhost", &port, "tls_ca_file"]).await;
    is_told(trusting(&front.url(), &stranger), &["not signed by any authority in tls_ca_file"]).await;
    let old = TlsFront::start_with(server.addr(), &TlsOptions { is_expired: true, ..TlsOptions::default() });
    is_told(trusting(&old.url(), &old), &["expired", "days ago"]).await;
}

#[tokio::test]
async fn a_certificate_for_another_name_is_explained() {
    let server = Server::start_default();
    let front = TlsFront::start_with(server.addr(), &only(&["redis.example.com", "10.1.2.3"]));
    let hints = ["is for redis.example.com, 10.1.2.3", "the address says localhost", "tls_server_name"];
    is_told(trusting(&front.url(), &front), &hints).await;
    let named = trusting(&front.url(), &front).tls_server_name("other.example.com");
    is_told(named, &["tls_server_name says other.example.com"]).await;
    let names: Vec<String> = (0..50).map(|number| format!("{number}.{}.example.com", "long".repeat(12))).collect();
    let many = TlsFront::start_with(server.addr(), &TlsOptions { names, ..TlsOptions::default() });
    let error = failure(trusting(&many.url(), &many)).await;
    assert!(error.message().len() < 900 && error.message().contains('…'), "{error}");
}

#[tokio::test]
async fn a_server_that_wants_a_certificate_is_explained() {
    let server = Server::start_default();
    let (front, stranger) = (TlsFront::start_mutual(server.addr()), TlsFront::start(server.addr()));
    is_told(trusting(&front.url(), &front), &["wants a client certificate", "tls_certificate and tls_key"]).await;
    let shown = trusting(&front.url(), &front).tls_certificate(stranger.client_cert_file());
    is_told(shown.tls_key(stranger.client_key_file()), &["refused the certificate of tls_certificate"]).await;
}

/// Answers whatever comes first, and cuts the connection.
fn answering(answer: &'static [u8]) -> ClientBuilder {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("rediss://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(answer);
        }
    });
    patient(&url).tls_insecure(true)
}

#[tokio::test]
async fn speaking_tls_to_one_who_does_not_is_explained() {
    is_told(answering(b"HTTP/1.1 400 Bad Request\r\n\r\n"), &["does not speak TLS there", "redis://"]).await;
    is_told(answering(b""), &["cut the TLS handshake short"]).await;
    // A server without TLS takes the greeting for the beginning of a command.
    for binary in server_binary::installed() {
        let server = Server::start(binary.kind);
        let hasty = patient(&server.url().replace("redis://", "rediss://")).connect_timeout(SECOND / 4);
        let limiter = hasty.build().unwrap().limiter("case", "1/h").unwrap();
        let error = limiter.check("k").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
        assert!(error.message().contains("is this its port for TLS?"), "{error}");
    }
}

#[tokio::test]
async fn not_speaking_tls_to_one_who_does_is_explained() {
    let server = Server::start_default();
    let front = TlsFront::start(server.addr());
    let error = failure(patient(&front.url().replace("rediss://", "redis://"))).await;
    assert!(error.message().contains("rediss://"), "{error}");
}

#[tokio::test]
async fn options_that_cannot_be_are_refused_when_the_client_is_built() {
    let server = Server::start_default();
    let (front, other) = (TlsFront::start(server.addr()), TlsFront::start(server.addr()));
    let files = front.certificates();
    let [garbage, half, empty] = [
        files.write("garbage.pem", "S3cr3t"),
        files.write("half.pem", "-----BEGIN PRIVATE KEY-----\nS3cr3tS3cr3t\n"),
        files.write("empty.pem", ""),
    ];
    let no_key = files.write("no-key.pem", "-----BEGIN PRIVATE KEY-----\nUzNjcjN0\n-----END PRIVATE KEY-----\n");
    let odd_mark = files.write("odd.pem", "-----BEGIN S3cr3t\nUzNjcjN0\n-----END\n");
    let no_certificate = files.write("no.pem", "-----BEGIN CERTIFICATE-----\nUzNjcjN0\n-----END CERTIFICATE-----\n");
    let (missing, folder) = (Path::new("/no/such/file.pem"), files.dir());
    let (certificate, key) = (front.client_cert_file(), front.client_key_file());
    let builder = || Client::builder(front.url());
    let shown = |certificate: &Path, key: &Path| builder().tls_certificate(certificate).tls_key(key);
    let cases = [
        (builder().tls_ca_file(missing), "tls_ca_file", "/no/such/file.pem"),
        (builder().tls_ca_file(folder), "tls_ca_file", &*folder.to_string_lossy()),
        (builder().tls_ca_file(&garbage), "tls_ca_file", "garbage.pem"),
        (builder().tls_ca_file(&half), "tls_ca_file", "half.pem"),
        (builder().tls_ca_file(&empty), "tls_ca_file", "empty.pem"),
        (builder().tls_ca_file(&odd_mark), "tls_ca_file", "odd.pem"),
        (builder().tls_ca_file(&no_certificate), "tls_ca_file", "no.pem"),
        (builder().tls_ca_file(&key), "tls_ca_file", "holds no certificate"),
        (builder().tls_certificate(&certificate), "tls_key", "needs"),
        (builder().tls_key(&key), "tls_certificate", "needs"),
        (shown(missing, &key), "tls_certificate", "/no/such/file.pem"),
        (shown(&certificate, missing), "tls_key", "/no/such/file.pem"),
        (shown(&certificate, &garbage), "tls_key", "garbage.pem"),
        (shown(&certificate, &half), "tls_key", "half.pem"),
        (shown(&certificate, &no_key), "tls_key", "no-key.pem"),
        (shown(&certificate, &certificate), "tls_key", "holds no private key"),
        (shown(&key, &key), "tls_certificate", "holds no certificate"),
        (shown(&no_certificate, &key), "tls_certificate", "no.pem"),
        (shown(&certificate, &other.client_key_file()), "tls_key", "is not that of the first certificate"),
        (builder().tls_server_name("a b"), "tls_server_name", "DNS name"),
        (builder().tls_server_name(""), "tls_server_name", "DNS name"),
        (builder().tls_server_name("localhost:6379"), "tls_server_name", "DNS name"),
    ];
    for (builder, option, hint) in cases {
        let error = builder.build().expect_err(hint);
        assert_eq!(error.kind(), ErrorKind::InvalidOptions, "{error}");
        assert!(error.message().contains(option) && error.message().contains(hint), "{option}, {hint}: {error}");
        let said = format!("{error} {error:?}");
        assert!(!said.contains("S3cr3t") && !said.contains("UzNj") && !said.contains("83, 51"), "{said}");
    }
}

#[test]
fn options_of_tls_are_refused_where_there_is_none() {
    for url in ["redis://localhost", "redis+cluster://localhost", "redis+unix:///run/redis.sock", "memory://"] {
        let builder = || Client::builder(url);
        for (option, builder) in [
            ("tls_ca_file", builder().tls_ca_file("ca.pem")),
            ("tls_certificate", builder().tls_certificate("client.pem")),
            ("tls_key", builder().tls_key("client.key")),
            ("tls_server_name", builder().tls_server_name("redis.example.com")),
            ("tls_insecure", builder().tls_insecure(true)),
        ] {
            let error = builder.build().expect_err(url);
            assert_eq!(error.kind(), ErrorKind::InvalidOptions, "{url}");
            assert!(error.message().contains(option) && error.message().contains("rediss://"), "{url}: {error}");
        }
        builder().tls_insecure(false).build().unwrap();
    }
}

/// Counts the warnings that name an option.
#[derive(Clone, Default)]
struct Warnings(Arc<AtomicUsize>);

impl Visit for Warnings {
    fn record_debug(&mut self, _: &Field, value: &dyn std::fmt::Debug) {
        self.0.fetch_add(usize::from(format!("{value:?}").contains("tls_insecure")), Ordering::SeqCst);
    }
}

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut self.clone());
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[test]
fn insecure_warns_once_for_each_client() {
    let warnings = Warnings::default();
    tracing::subscriber::with_default(warnings.clone(), || {
        for (insecure, wanted) in [(false, 0), (true, 1), (true, 2)] {
            let client = Client::builder("rediss+cluster://a,b,c").tls_insecure(insecure).build().unwrap();
            assert_eq!(warnings.0.load(Ordering::SeqCst), wanted);
            drop(client);
        }
    });
}

#[tokio::test]
async fn handshakes_that_fail_are_spaced_and_leave_no_connection() {
    let server = Server::start_default();
    let (front, stranger) = (TlsFront::start(server.addr()), TlsFront::start(server.addr()));
    let proxy = Proxy::start(front.addr());
    let url = format!("rediss://127.0.0.1:{}", proxy.port());
    let clients = Mutex::new(Vec::new());
    for _ in 0..100 {
        let limiter = limiter(trusting(&url, &stranger));
        assert_eq!(limiter.check("k").await.unwrap_err().kind(), ErrorKind::Connection);
        clients.lock().unwrap().push(limiter);
    }
    eventually("no connection", 5 * SECOND, async || proxy.open() == 0).await;
    assert_eq!(proxy.accepted(), 100);
    let one = clients.lock().unwrap().pop().unwrap();
    let started = Instant::now();
    while started.elapsed() < SECOND {
        one.check("k").await.unwrap_err();
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // Pauses of at least 25, 50, 100, 200 and 400 ms, and the last attempt.
    assert!(proxy.accepted() <= 107, "{}", proxy.accepted());
}
