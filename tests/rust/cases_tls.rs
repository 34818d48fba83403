//! TLS: to servers and clusters behind a front that speaks it, and to servers that do so themselves.

#[path = "cases_tls_failures.rs"]
mod failures;
#[path = "cases_tls_renewal.rs"]
mod renewal;

use std::net::Ipv6Addr;
use std::time::{Duration, Instant};

use grifo::{Client, ClientBuilder, ErrorKind, FailurePolicy, Limiter};
use grifo_tests::case::{PATIENCE, eventually, patient};
use grifo_tests::certificates::{Certificates, EC_KEY, RSA_KEY};
use grifo_tests::ports::free_port;
use grifo_tests::tls_cluster::start_redis;
use grifo_tests::{Endpoint, Mode, Proxy, Server, TlsCluster, TlsFront, TlsOptions, server_binary};

const SECOND: Duration = Duration::from_secs(1);

/// A client that is patient, raises what goes wrong, and trusts a front.
fn trusting(url: &str, front: &TlsFront) -> ClientBuilder {
    patient(url).connect_timeout(PATIENCE).tls_ca_file(front.ca_file())
}

fn limiter(builder: ClientBuilder) -> Limiter {
    builder.build().unwrap_or_else(|error| panic!("{error}")).limiter("case", "1000/20000d").unwrap()
}

/// Decides many keys, so that every master of a cluster is asked.
async fn decides(builder: ClientBuilder) {
    let limiter = limiter(builder);
    let keys = (0..100).map(|number| (format!("key {number}"), 1));
    let decisions = limiter.check_many(keys).await.unwrap_or_else(|error| panic!("{error}"));
    assert!(decisions.iter().all(|decision| decision.allowed && !decision.degraded()));
}

fn only(names: &[&str]) -> TlsOptions {
    TlsOptions { names: names.iter().map(|name| (*name).to_owned()).collect(), ..TlsOptions::default() }
}

fn has_ipv6() -> bool {
    std::net::TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok()
}

#[tokio::test]
async fn a_server_is_reached_by_each_name_and_address_in_its_certificate() {
    let server = Server::start_default();
    let front = TlsFront::start(server.addr());
    let hosts = ["localhost", "127.0.0.1", "[::1]", "[0:0:0:0:0:0:0:1]"];
    for host in &hosts[..if has_ipv6() { 4 } else { 2 }] {
        decides(trusting(&format!("rediss://{host}:{}", front.port()), &front)).await;
    }
}

#[tokio::test]
async fn passwords_users_and_databases_work_as_without() {
    let server = Server::start_with(server_binary::installed()[0].kind, &["--requirepass", "p#ss"]);
    let front = TlsFront::start(server.addr());
    for user in ["", "default"] {
        decides(trusting(&format!("rediss://{user}:p%23ss@localhost:{}/3", front.port()), &front)).await;
    }
    let mut connection = server.connection().unwrap();
    let sizes: String = redis::cmd("INFO").arg("keyspace").query(&mut connection).unwrap();
    assert!(sizes.contains("db3:") && !sizes.contains("db0:"), "{sizes}");
}

#[tokio::test]
async fn a_server_may_be_elsewhere_than_its_name_says() {
    let server = Server::start_default();
    let front = TlsFront::start_with(server.addr(), &only(&["redis.example.com", "10.1.2.3"]));
    for name in ["redis.example.com", "10.1.2.3"] {
        decides(trusting(&front.url(), &front).tls_server_name(name)).await;
    }
}

#[tokio::test]
async fn a_file_may_hold_several_authorities() {
    let server = Server::start_default();
    let (front, other) = (TlsFront::start(server.addr()), TlsFront::start(server.addr()));
    let read = |front: &TlsFront| std::fs::read_to_string(front.ca_file()).unwrap();
    let both = format!("Some words of explanation\n{}\n# and\n{}", read(&other), read(&front));
    let file = front.certificates().write("both.pem", &both);
    for url in [front.url(), other.url()] {
        decides(patient(&url).tls_ca_file(&file)).await;
    }
}

#[tokio::test]
async fn a_client_shows_its_certificate_whatever_the_form_of_its_key() {
    let server = Server::start_default();
    let front = TlsFront::start_mutual(server.addr());
    let shown = trusting(&front.url(), &front).tls_certificate(front.client_cert_file());
    decides(shown.clone().tls_key(front.client_key_file())).await;
    for key in [EC_KEY, RSA_KEY] {
        let certificate = front.certificates().client_file_for(&key);
        for form in [key.pkcs8, key.of_its_kind] {
            let file = front.certificates().write("sample.key", form);
            decides(shown.clone().tls_certificate(&certificate).tls_key(file)).await;
        }
    }
}

#[tokio::test]
async fn a_certificate_that_nobody_asks_for_does_no_harm() {
    let server = Server::start_default();
    let front = TlsFront::start(server.addr());
    let shown = trusting(&front.url(), &front).tls_certificate(front.client_cert_file());
    decides(shown.tls_key(front.client_key_file())).await;
}

#[tokio::test]
async fn insecure_takes_any_certificate() {
    let server = Server::start_default();
    let expired = TlsFront::start_with(server.addr(), &TlsOptions { is_expired: true, ..only(&["example.com"]) });
    let stranger = TlsFront::start(server.addr());
    decides(patient(&expired.url()).tls_insecure(true)).await;
    decides(patient(&expired.url()).tls_insecure(true).tls_ca_file(stranger.ca_file())).await;
    let mutual = TlsFront::start_mutual(server.addr());
    let shown = patient(&mutual.url()).tls_insecure(true).tls_certificate(mutual.client_cert_file());
    decides(shown.tls_key(mutual.client_key_file())).await;
}

#[tokio::test]
async fn redis_with_tls_of_its_own_is_reached() {
    let certificates = Certificates::new(&["localhost".to_owned()], false);
    let strangers = Certificates::new(&[], false);
    for args in [&[][..], &["--tls-protocols", "TLSv1.2"], &["--tls-protocols", "TLSv1.3"]] {
        let port = free_port();
        let server = match start_redis(&certificates, port, args) {
            Ok(server) => server,
            Err(why) => return println!("no Redis 7.0 with TLS here: {}", why.lines().next().unwrap_or_default()),
        };
        let builder = patient(&format!("rediss://localhost:{port}")).tls_ca_file(certificates.ca_file());
        let shown = builder.clone().tls_certificate(certificates.client_cert_file());
        decides(shown.tls_key(certificates.client_key_file())).await;
        let error = limiter(builder.clone()).check("k").await.unwrap_err();
        assert!(error.message().contains("tls_certificate and tls_key"), "{args:?}: {error}");
        let strange = builder.tls_certificate(strangers.client_cert_file()).tls_key(strangers.client_key_file());
        let error = limiter(strange).check("k").await.unwrap_err();
        assert!(error.message().contains("refused the certificate of tls_certificate"), "{args:?}: {error}");
        let error = limiter(patient(&format!("redis://localhost:{port}"))).check("k").await.unwrap_err();
        assert!(error.message().contains("rediss://"), "{args:?}: {error}");
        drop(server);
    }
}

#[tokio::test]
async fn a_cluster_of_redis_with_tls_of_its_own_is_reached() {
    let cluster = match TlsCluster::of_redis() {
        Ok(cluster) => cluster,
        Err(why) => return println!("no Redis 7.0 with TLS here: {}", why.lines().next().unwrap_or_default()),
    };
    let certificates = cluster.certificates();
    for host in ["localhost", "127.0.0.1"] {
        let builder = patient(&cluster.url(host)).tls_ca_file(cluster.ca_file());
        let shown = builder.tls_certificate(certificates.client_cert_file()).tls_key(certificates.client_key_file());
        decides(shown).await;
    }
    for node in cluster.nodes() {
        assert!(node.command::<u64, _>(&["DBSIZE"]) > 0);
    }
}

#[tokio::test]
async fn all_nodes_of_a_cluster_are_spoken_to_with_tls() {
    let kind = server_binary::installed()[0].kind;
    let cluster = TlsCluster::behind_fronts(kind, Endpoint::Ip, &["localhost", "127.0.0.1"]);
    decides(patient(&cluster.url("localhost")).tls_ca_file(cluster.ca_file())).await;
    for node in cluster.nodes() {
        assert!(node.command::<u64, _>(&["DBSIZE"]) > 0);
    }
    let plain = cluster.url("localhost").replace("rediss+", "redis+");
    let error = limiter(patient(&plain)).check("k").await.unwrap_err();
    assert!(error.message().contains("rediss://"), "{error}");
}

#[tokio::test]
async fn a_node_of_a_cluster_must_have_the_name_that_it_announces() {
    let kind = server_binary::installed()[0].kind;
    let cluster = TlsCluster::behind_fronts(kind, Endpoint::Ip, &["localhost"]);
    let builder = patient(&cluster.url("localhost")).tls_ca_file(cluster.ca_file());
    let error = limiter(builder.clone()).check("k").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connection);
    assert!(error.message().contains("is for localhost") && error.message().contains("says 127.0.0.1"), "{error}");
    decides(builder.tls_server_name("localhost")).await;
    decides(patient(&cluster.url("localhost")).tls_insecure(true)).await;
}

#[tokio::test]
async fn a_node_of_a_cluster_may_announce_a_name() {
    let kind = server_binary::installed()[0].kind;
    let cluster = TlsCluster::behind_fronts(kind, Endpoint::Hostname, &["localhost"]);
    decides(patient(&cluster.url("localhost")).tls_ca_file(cluster.ca_file())).await;
}

#[tokio::test]
async fn a_front_that_goes_away_and_comes_back_is_found_again() {
    let server = Server::start_default();
    let front = TlsFront::start(server.addr());
    let proxy = Proxy::start(front.addr());
    let builder = Client::builder(format!("rediss://127.0.0.1:{}", proxy.port())).tls_ca_file(front.ca_file());
    let limiter = limiter(builder.timeout(SECOND / 4));
    for mode in [Mode::Refuse, Mode::Stall, Mode::DropReplies] {
        eventually("a decision of the store", 5 * SECOND, async || !limiter.check("k").await.unwrap().degraded()).await;
        proxy.set(mode);
        proxy.cut();
        eventually("an outage", 5 * SECOND, async || limiter.check("k").await.unwrap().degraded()).await;
        proxy.set(Mode::Forward);
    }
    eventually("a decision of the store", 5 * SECOND, async || !limiter.check("k").await.unwrap().degraded()).await;
}

#[tokio::test]
async fn the_deadline_is_kept_while_a_handshake_stalls() {
    let server = Server::start_default();
    let front = TlsFront::start(server.addr());
    let proxy = Proxy::start(front.addr());
    proxy.set(Mode::Stall);
    let url = format!("rediss://127.0.0.1:{}", proxy.port());
    let limiter = limiter(Client::builder(url).tls_ca_file(front.ca_file()).connect_timeout(SECOND));
    let mut fastest = SECOND;
    for _ in 0..5 {
        let started = Instant::now();
        let decision = limiter.check("k").await.unwrap();
        assert!(decision.allowed && decision.degraded(), "{decision:?}");
        fastest = fastest.min(started.elapsed());
    }
    // The machine may be busy for one of them, and hardly for all.
    assert!(fastest < Duration::from_millis(100), "{fastest:?}");
    let late = limiter.on_failure(FailurePolicy::Raise);
    eventually("the end of the attempt", 5 * SECOND, async || {
        late.check("k").await.unwrap_err().message().contains("handshake unanswered")
    })
    .await;
}
