//! Credentials from a provider: rotated under load, refused, late, and asked for no more often than need be.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use grifo::{Client, ClientBuilder, Credentials, ErrorKind, FailurePolicy, Limiter};
use grifo_tests::case::{eventually, patient};
use grifo_tests::cluster::Cluster;
use grifo_tests::vault::{Answer, Vault, app, app_for, set_password};
use grifo_tests::{ClusterOptions, Listener, Proxy, Server, ServerKind, server_binary};

const SECOND: Duration = Duration::from_secs(1);
const ADMIN: &str = "admin";

fn default_kind() -> ServerKind {
    server_binary::installed()[0].kind
}

/// A server that lets nobody in without a password.
fn server() -> Server {
    Server::start_with(default_kind(), &["--requirepass", ADMIN])
}

fn sealed() -> Answer {
    Answer::Fails("the vault is sealed".to_owned())
}

/// Ends every connection of a user.
fn cut(server: &Server, user: &str) {
    server.command::<usize, _>(&["CLIENT", "KILL", "USER", user]);
}

/// A client that hides no trouble, and does not wait long for it.
fn hasty(url: &str) -> ClientBuilder {
    Client::builder(url).timeout(SECOND / 4).connect_timeout(SECOND)
}

async fn degraded(limiter: &Limiter) -> bool {
    limiter.check("k").await.unwrap().degraded()
}

async fn normal(limiter: &Limiter) {
    eventually("a decision of the store", 10 * SECOND, async || !degraded(limiter).await).await;
}

/// Runs hits from several callers for a time; every one must be decided by the store.
async fn load(limiter: &Limiter, time: Duration) {
    let end = Instant::now() + time;
    let caller = |_| {
        let limiter = limiter.clone();
        tokio::spawn(async move {
            while Instant::now() < end {
                assert!(limiter.check("k").await.unwrap().allowed);
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        })
    };
    for caller in (0..4).map(caller).collect::<Vec<_>>() {
        caller.await.unwrap();
    }
}

/// Each call of the provider makes a new user and deletes the last but one, with all connections that are still theirs.
#[tokio::test]
async fn credentials_rotate_under_load_and_no_decision_notices() {
    let server = Arc::new(server());
    let proxy = Proxy::start(server.addr());
    let calls = Arc::new(AtomicUsize::new(0));
    let (counter, admin) = (Arc::clone(&calls), Arc::clone(&server));
    let provider = move || {
        let (call, admin) = (counter.fetch_add(1, Ordering::SeqCst), Arc::clone(&admin));
        async move {
            let user = format!("app{call}");
            set_password(&admin, &user, &user);
            if let Some(old) = call.checked_sub(2) {
                assert_eq!(admin.command::<usize, _>(&["ACL", "DELUSER", &format!("app{old}")]), 1);
            }
            Ok(Credentials::new(user.clone()).user(user).valid_for(SECOND * 3 / 2))
        }
    };
    let client = patient(&proxy.url()).credentials_provider(provider).build().unwrap();
    let limiter = client.limiter("case", "1000000/20000d").unwrap();
    load(&limiter, 7 * SECOND).await;
    let calls = calls.load(Ordering::SeqCst);
    println!("asked {calls} times in seven seconds");
    assert!((4..=8).contains(&calls), "{calls}");
    assert_eq!(proxy.accepted(), 1, "the connection was never made anew");
    assert_eq!(client.stats().degraded, 0);
}

#[tokio::test]
async fn a_password_that_is_refused_is_not_used_again() {
    let server = server();
    set_password(&server, "app", "right");
    for validity in [None, Some(1000 * SECOND)] {
        let wrong = Credentials::new("wrong").user("app");
        let vault = Vault::new(Answer::Yields(validity.map_or(wrong.clone(), |validity| wrong.valid_for(validity))));
        let limiter = vault.limiter(hasty(&server.url()));
        let end = Instant::now() + SECOND;
        while Instant::now() < end {
            assert_eq!(limiter.check("k").await.unwrap().reason, Some(ErrorKind::Auth));
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert!((2..=12).contains(&vault.calls()), "{}", vault.calls());
        vault.set(app("right"));
        normal(&limiter).await;
    }
}

#[tokio::test]
async fn a_provider_that_fails_hangs_or_panics_holds_up_nobody() {
    let server = server();
    set_password(&server, "app", "right");
    for answer in [sealed(), Answer::Hangs, Answer::Panics] {
        let hangs = matches!(answer, Answer::Hangs);
        let vault = Vault::new(answer);
        let limiter = vault.limiter(hasty(&server.url()));
        for _ in 0..6 {
            let started = Instant::now();
            let decision = limiter.check("k").await.unwrap();
            assert!(started.elapsed() < SECOND, "{:?}", started.elapsed());
            match decision.reason {
                Some(ErrorKind::Auth) if !hangs => {}
                Some(ErrorKind::Timeout) if hangs => {}
                other => panic!("{other:?}, hangs: {hangs}"),
            }
        }
        assert!(vault.calls() <= 6, "{}", vault.calls());
        vault.set(app("right"));
        normal(&limiter).await;
    }
}

#[tokio::test]
async fn errors_say_what_was_wrong_with_the_provider() {
    let server = server();
    for (answer, hint) in
        [(sealed(), "the vault is sealed"), (Answer::Panics, "panicked"), (Answer::Hangs, "connect_timeout")]
    {
        let client = Vault::new(answer).with(hasty(&server.url())).build().unwrap();
        let error = client.connect(2 * SECOND).await.unwrap_err();
        assert!(error.message().contains(hint), "{error}");
    }
}

#[tokio::test]
async fn without_a_validity_it_is_asked_for_each_connection_alone() {
    let server = server();
    set_password(&server, "app", "first");
    let vault = Vault::new(app("first"));
    let limiter = vault.limiter(hasty(&server.url()).connect_timeout(5 * SECOND));
    normal(&limiter).await;
    tokio::time::sleep(2 * SECOND).await;
    assert_eq!(vault.calls(), 1);
    for (round, password) in ["second", "third", "fourth"].into_iter().enumerate() {
        set_password(&server, "app", password);
        vault.set(app(password));
        assert!(!degraded(&limiter).await, "a changed password ends no connection");
        cut(&server, "app");
        normal(&limiter).await;
        assert_eq!(vault.calls(), 2 + round);
    }
}

#[tokio::test]
async fn a_renewal_that_fails_is_tried_again_and_logged_once() {
    let listener = Listener::default();
    let _guard = tracing::subscriber::set_default(listener.clone());
    let server = server();
    set_password(&server, "app", "right");
    let vault = Vault::new(app_for("right", SECOND));
    let limiter = vault.limiter(patient(&server.url()));
    load(&limiter, SECOND / 10).await;
    vault.set(sealed());
    let said = |what: &str| listener.text().matches(what).count();
    // Beyond the end of the validity the connection is as good as the server lets it be.
    load(&limiter, 4 * SECOND).await;
    assert!((3..=6).contains(&vault.calls()), "{}", vault.calls());
    assert_eq!(said("could not be renewed"), 1, "{}", listener.text());
    let asked = vault.calls();
    vault.set(app("right"));
    eventually("another call", 10 * SECOND, async || vault.calls() > asked).await;
    eventually("a line in the log", SECOND, async || said("were renewed") == 1).await;
    assert_eq!(said("could not be renewed"), 1, "{}", listener.text());
}

#[tokio::test]
async fn a_password_that_is_still_valid_will_do_while_the_provider_fails() {
    let server = server();
    set_password(&server, "app", "right");
    for answer in [sealed(), Answer::Hangs, Answer::Panics] {
        let vault = Vault::new(app_for("right", 1000 * SECOND));
        let limiter = vault.limiter(hasty(&server.url()));
        normal(&limiter).await;
        vault.set(answer);
        cut(&server, "app");
        normal(&limiter).await;
        // Once more where this machine is too busy to log in within the rest of `connect_timeout`.
        assert!((2..=3).contains(&vault.calls()), "{}", vault.calls());
    }
}

fn cluster(masters: usize) -> Cluster {
    let cluster = Cluster::start_with(ClusterOptions::new(default_kind(), masters, 0));
    cluster.nodes().iter().for_each(|node| set_password(node, "app", "right"));
    // Nobody gets by without a password; but the harness itself must.
    cluster.nodes().iter().for_each(|node| node.command::<(), _>(&["ACL", "SETUSER", "default", "-evalsha", "-eval"]));
    cluster
}

/// Whether the store decides keys of all masters.
async fn all_normal(limiter: &Limiter) -> bool {
    let decisions = limiter.check_many((0..60).map(|key| (format!("{key}"), 1))).await.unwrap();
    decisions.iter().all(|decision| !decision.degraded())
}

#[tokio::test]
async fn the_nodes_of_a_cluster_share_one_call() {
    let cluster = cluster(3);
    let vault = Vault::new(app_for("right", 1000 * SECOND));
    let limiter = vault.limiter(hasty(&cluster.url()).connect_timeout(5 * SECOND));
    eventually("normal", 5 * SECOND, async || all_normal(&limiter).await).await;
    assert_eq!(vault.calls(), 1);
    for round in 2..4 {
        cluster.nodes().iter().for_each(|node| cut(node, "app"));
        eventually("normal", 5 * SECOND, async || all_normal(&limiter).await).await;
        println!("asked {} times after {round} rounds", vault.calls());
        assert_eq!(vault.calls(), round);
    }
    vault.set(sealed());
    cluster.nodes().iter().for_each(|node| set_password(node, "app", "changed"));
    cluster.nodes().iter().for_each(|node| cut(node, "app"));
    let (before, end) = (vault.calls(), Instant::now() + 2 * SECOND);
    while Instant::now() < end {
        assert!(!all_normal(&limiter).await);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    println!("asked {} times in vain in two seconds", vault.calls() - before);
    assert!(vault.calls() - before <= 12, "{}", vault.calls() - before);
    vault.set(app("changed"));
    eventually("normal", 5 * SECOND, async || all_normal(&limiter).await).await;
}

/// Every connection of a client logs in anew, with one call for all.
#[tokio::test]
async fn the_nodes_of_a_cluster_renew_together() {
    let cluster = cluster(3);
    let vault = Vault::new(app_for("right", 3 * SECOND));
    let client = vault.with(patient(&cluster.url())).build().unwrap();
    client.connect(10 * SECOND).await.unwrap();
    let logins = || {
        let of = |node: &Server| {
            let info: String = node.command(&["INFO", "commandstats"]);
            let line = info.lines().find_map(|line| line.strip_prefix("cmdstat_auth:calls="));
            line.and_then(|line| line.split(',').next()?.parse::<usize>().ok()).unwrap_or(0)
        };
        cluster.nodes().iter().map(of).collect::<Vec<_>>()
    };
    let before = logins();
    eventually("renewals", 10 * SECOND, async || logins().iter().zip(&before).all(|(now, then)| *now > *then)).await;
    assert_eq!(vault.calls(), 2);
}

fn tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

fn connections(server: &Server) -> usize {
    let list: String = server.command(&["CLIENT", "LIST"]);
    list.lines().filter(|line| line.contains("user=app")).count()
}

#[tokio::test]
async fn nothing_is_left_of_a_client_that_is_closed_or_dropped() {
    let server = server();
    set_password(&server, "app", "right");
    for (answer, close) in [
        (app_for("right", SECOND), true),
        (app_for("right", 1000 * SECOND), true),
        (app_for("right", 1000 * SECOND), false),
        (Answer::Hangs, true),
        (Answer::Hangs, false),
        (sealed(), true),
        (Answer::Panics, false),
    ] {
        let vault = Vault::new(answer);
        let client = vault.with(Client::builder(server.url())).connect_timeout(100 * SECOND).build().unwrap();
        let limiter = client.limiter("case", "10/20000d").unwrap();
        for _ in 0..5 {
            degraded(&limiter).await;
        }
        if close {
            client.close();
        } else {
            drop((client, limiter));
        }
        eventually("no task", 2 * SECOND, async || tasks() == 0).await;
        eventually("no connection", 2 * SECOND, async || connections(&server) == 0).await;
        let calls = vault.calls();
        tokio::time::sleep(SECOND * 3 / 2).await;
        assert_eq!(vault.calls(), calls, "nobody asks for a client that is gone");
    }
}

/// Runs a call on a runtime that is gone afterwards.
fn on_a_runtime_of_its_own<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

#[test]
fn each_runtime_renews_anew() {
    let server = server();
    set_password(&server, "app", "right");
    let vault = Vault::new(app_for("right", SECOND));
    let limiter = vault.limiter(patient(&server.url()));
    for _ in 0..3 {
        on_a_runtime_of_its_own(async {
            assert!(limiter.check("k").await.unwrap().allowed);
            let connected = vault.calls();
            eventually("a renewal", 5 * SECOND, async || vault.calls() > connected).await;
        });
    }
}

#[test]
fn a_runtime_that_ends_while_the_provider_is_asked_costs_one_call() {
    let server = server();
    set_password(&server, "app", "right");
    let vault = Vault::new(Answer::Hangs);
    let limiter = vault.limiter(hasty(&server.url()));
    assert!(on_a_runtime_of_its_own(degraded(&limiter)));
    vault.set(app("right"));
    on_a_runtime_of_its_own(normal(&limiter));
    on_a_runtime_of_its_own(normal(&limiter));
}

#[tokio::test]
async fn a_password_without_a_user_is_that_of_the_default_user() {
    let server = server();
    let provider = || async { Ok(Credentials::new(ADMIN)) };
    for url in [server.url(), format!("{}/3", server.url()), server.unix_url(), format!("{}?db=2", server.unix_url())] {
        let client = patient(&url).credentials_provider(provider).build().unwrap();
        client.connect(5 * SECOND).await.unwrap();
    }
}

#[test]
fn credentials_have_one_source() {
    let provider = || async { Ok(Credentials::new("right")) };
    for url in [
        "memory://",
        "redis://:secret@localhost",
        "redis://user:secret@localhost",
        "redis+unix:///run/s?pass=secret",
        "redis+unix:///run/s?user=secret",
        "redis+cluster://:secret@localhost,localhost:7000",
    ] {
        let error = Client::builder(url).credentials_provider(provider).build().expect_err(url);
        assert_eq!(error.kind(), ErrorKind::InvalidOptions, "{url}");
        assert!(error.message().contains("provider") && !error.message().contains("secret"), "{url}: {error}");
    }
}

#[tokio::test]
async fn every_policy_answers_while_there_are_no_credentials() {
    let server = server();
    let limiter = Vault::new(sealed()).limiter(hasty(&server.url()));
    for (policy, allowed) in [(FailurePolicy::Open, true), (FailurePolicy::Closed, false), (FailurePolicy::Local, true)]
    {
        let decision = limiter.clone().on_failure(policy).check("k").await.unwrap();
        assert_eq!((decision.allowed, decision.reason), (allowed, Some(ErrorKind::Auth)), "{policy:?}");
    }
    let error = limiter.on_failure(FailurePolicy::Raise).check("k").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Auth);
}
