//! Faults that no field case names: callers that come together, rights that are missing, runtimes that stand still.

use std::time::{Duration, Instant};

use grifo::{Client, ErrorKind, FailurePolicy, Source};
use grifo_tests::case::stored_keys;
use grifo_tests::{Mode, Proxy, Server};

const SECOND: Duration = Duration::from_secs(1);

fn client(url: &str) -> Client {
    Client::builder(url).timeout(5 * SECOND).on_failure(FailurePolicy::Raise).build().unwrap()
}

#[tokio::test]
async fn acquire_of_nothing_passes_while_others_wait() {
    let limiter = client("memory://").limiter("case", "1/h").unwrap();
    assert!(limiter.check("k").await.unwrap().allowed);
    let waiting = tokio::spawn({
        let limiter = limiter.clone();
        async move { limiter.acquire("k", 1, 2 * 3600 * SECOND).await }
    });
    tokio::task::yield_now().await;
    assert!(limiter.acquire("k", 0, SECOND).await.unwrap().allowed);
    waiting.abort();
}

#[tokio::test]
async fn acquire_is_not_held_up_by_other_limits_of_the_same_name() {
    let client = client("memory://");
    let slow = client.limiter("case", "1/h").unwrap();
    let fast = client.limiter("case", "sliding-window 100/s + sliding-window 1000/min").unwrap();
    assert!(slow.check("k").await.unwrap().allowed);
    let waiting = tokio::spawn(async move { slow.acquire("k", 1, 2 * 3600 * SECOND).await });
    tokio::task::yield_now().await;
    let decision = fast.acquire("k", 1, SECOND).await.unwrap();
    assert!(decision.allowed);
    assert_eq!(decision.limits.len(), 2);
    waiting.abort();
}

#[tokio::test]
async fn a_denial_in_line_names_a_wait_and_who_denied() {
    let limiter = client("memory://").limiter("case", "1/h").unwrap();
    assert!(limiter.check("k").await.unwrap().allowed);
    let waiting = tokio::spawn({
        let limiter = limiter.clone();
        async move { limiter.acquire("k", 1, 2 * 3600 * SECOND).await }
    });
    tokio::task::yield_now().await;
    let decision = limiter.acquire("k", 1, SECOND).await.unwrap();
    assert_eq!((decision.allowed, decision.denied_by, decision.remaining), (false, Some(0), 0));
    assert!(decision.retry_after.unwrap() > 3500 * SECOND);
    assert_eq!(decision.limits[0].retry_after, decision.retry_after);
    waiting.abort();
}

#[tokio::test]
async fn acquire_does_not_queue_for_tokens_that_are_there() {
    let server = Server::start_default();
    let proxy = Proxy::start(server.addr());
    let client = client(&proxy.url());
    let limiter = client.limiter("case", "1000/h").unwrap();
    client.connect(5 * SECOND).await.unwrap();
    proxy.set(Mode::Delay(Duration::from_millis(20)));
    for max_wait in [Duration::ZERO, Duration::from_millis(200)] {
        let started = Instant::now();
        let callers = (0..100).map(|_| {
            let limiter = limiter.clone();
            tokio::spawn(async move { limiter.acquire("k", 1, max_wait).await.unwrap() })
        });
        for caller in callers.collect::<Vec<_>>() {
            let decision = caller.await.unwrap();
            assert!(decision.allowed, "{max_wait:?}: {decision:?}");
        }
        assert!(started.elapsed() < SECOND, "{:?}", started.elapsed());
    }
    assert_eq!(limiter.peek("k").await.unwrap().remaining, 800);
}

#[tokio::test]
async fn acquire_lets_everybody_pass_when_the_policy_is_open() {
    let server = Server::start_default();
    let client = Client::builder(server.url()).build().unwrap();
    let limiter = client.limiter("case", "1000/h").unwrap();
    assert!(limiter.check("k").await.unwrap().allowed);
    server.stop();
    let callers: Vec<_> = (0..60)
        .map(|_| {
            let limiter = limiter.clone();
            tokio::spawn(async move { limiter.acquire("k", 1, SECOND / 2).await.unwrap() })
        })
        .collect();
    for caller in callers {
        let decision = caller.await.unwrap();
        assert_eq!((decision.allowed, decision.source), (true, Source::Open));
    }
    server.cont();
}

#[tokio::test]
async fn a_refund_of_any_size_is_one_call() {
    let server = Server::start_default();
    for url in ["memory://", &server.url()] {
        let limiter = client(url).limiter("case", "sliding-window 9000000000000000/d").unwrap();
        assert!(limiter.check_n("k", 4_000_000_000).await.unwrap().allowed);
        let decision = limiter.refund("k", 3_999_999_999).await.unwrap();
        assert_eq!(decision.limit - decision.remaining, 1);
    }
}

#[tokio::test]
async fn a_thousand_keys_are_decided_within_one_deadline() {
    let server = Server::start_default();
    let client = Client::builder(server.url()).timeout(SECOND / 2).build().unwrap();
    let limiter = client.limiter("case", "10/h").unwrap();
    client.connect(5 * SECOND).await.unwrap();
    let decided = |decisions: Vec<grifo::Decision>| decisions.iter().filter(|decision| !decision.degraded()).count();
    // The best of a few: other work on the machine must not fail this.
    let mut best = 0;
    for _ in 0..5 {
        best = best.max(decided(limiter.check_many((0..1000_u32).map(|key| (key.to_le_bytes(), 1))).await.unwrap()));
    }
    assert_eq!(best, 1000);
}

#[tokio::test]
async fn a_missing_right_charges_nothing_and_leaves_no_immortal_key() {
    let server = Server::start_default();
    for missing in ["zadd", "pexpire", "zrem", "zremrangebyrank", "set"] {
        server.command::<(), _>(&["FLUSHALL"]);
        let rule = format!("-{missing}");
        server.command::<(), _>(&["ACL", "SETUSER", "poor", "reset", "on", ">pw", "~*", "+@all", &rule]);
        let limiter = client(&server.url().replace("://", "://poor:pw@"))
            .limiter("case", "10/d + sliding-window 10/h + fixed-window 10/d")
            .unwrap();
        let error = limiter.check("k").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Permission, "{missing}: {error}");
        assert!(stored_keys(&server).is_empty(), "{missing}");
    }
}

#[tokio::test]
async fn a_missing_right_charges_nothing_where_a_log_is_to_be_healed() {
    let server = Server::start_default();
    let limits = "10/d + sliding-window 10/h";
    assert!(client(&server.url()).limiter("case", limits).unwrap().check("k").await.unwrap().allowed);
    let is_log = |key: &Vec<u8>| String::from_utf8_lossy(key).contains("}:1l:");
    let log = stored_keys(&server).into_iter().find(is_log).unwrap();
    server.command::<(), _>(&[b"SET".as_slice(), &log, b"not a log"]);
    server.command::<(), _>(&["ACL", "SETUSER", "poor", "reset", "on", ">pw", "~*", "+@all", "-zadd"]);
    let limiter = client(&server.url().replace("://", "://poor:pw@")).limiter("case", limits).unwrap();
    assert_eq!(limiter.check("k").await.unwrap_err().kind(), ErrorKind::Permission);
    let bucket = client(&server.url()).limiter("case", "10/d").unwrap();
    assert_eq!(bucket.peek("k").await.unwrap().remaining, 9);
}

#[tokio::test]
async fn errors_are_told_by_their_code_whatever_the_user_is_called() {
    let server = Server::start_default();
    for user in ["NOSCRIPT", "LOADING", "READONLY", "MOVED"] {
        server.command::<(), _>(&["ACL", "SETUSER", user, "reset", "on", ">pw", "~*", "+@all", "-evalsha"]);
        let limiter = client(&server.url().replace("://", &format!("://{user}:pw@"))).limiter(user, "10/d").unwrap();
        let error = limiter.check(user).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Permission, "{user}: {error}");
    }
}

#[tokio::test]
async fn a_user_of_other_keys_is_told_so() {
    let server = Server::start_default();
    server.command::<(), _>(&["ACL", "SETUSER", "other", "reset", "on", ">pw", "~shop:*", "+@all"]);
    let pong = client(&server.url().replace("://", "://other:pw@")).ping().await.unwrap();
    assert_eq!(pong.lacking, ["~grifo:*"]);
}

#[tokio::test]
async fn connecting_takes_a_sane_time_and_tries_again_until_then() {
    let server = Server::start_default();
    let error = client(&server.url()).connect(Duration::MAX).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidOptions);
    let port = grifo_tests::ports::free_port();
    let started = Instant::now();
    let error = client(&format!("redis://127.0.0.1:{port}")).connect(SECOND / 2).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connection);
    assert!(started.elapsed() >= SECOND / 2);
}

#[test]
fn a_missing_runtime_is_an_error_under_every_policy() {
    let client = Client::open("redis://127.0.0.1:1").unwrap();
    let limiter = client.limiter("case", "10/d").unwrap();
    let mut check = Box::pin(limiter.check("k"));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match check.as_mut().poll(&mut context) {
        std::task::Poll::Ready(outcome) => assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Internal),
        std::task::Poll::Pending => panic!("there is nothing to wait for"),
    }
}

#[test]
fn a_runtime_that_nobody_drives_does_not_hold_up_another() {
    let server = Server::start_default();
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let builder = Client::builder(server.url()).connect_timeout(Duration::from_millis(300));
    let client = builder.timeout(Duration::from_millis(20)).build().unwrap();
    let limiter = client.limiter("case", "10/d").unwrap();
    server.stop();
    let idle = runtime();
    assert!(idle.block_on(limiter.check("k")).unwrap().degraded());
    server.cont();
    let started = Instant::now();
    let driven = runtime();
    while driven.block_on(limiter.check("k")).unwrap().degraded() {
        assert!(started.elapsed() < 3 * SECOND, "the client never came back");
    }
    drop(idle);
}

#[tokio::test]
async fn a_key_is_not_let_go_for_another_limit_of_its_own() {
    let client = Client::builder("memory://").max_keys(4).build().unwrap();
    let limiter = client.limiter("case", "5/h + sliding-window 3/d + fixed-window 4/d + 5/min").unwrap();
    let mut allowed = 0;
    for _ in 0..100 {
        allowed += u32::from(limiter.check("k").await.unwrap().allowed);
    }
    assert_eq!(allowed, 3);
    assert!(Client::builder("memory://").max_keys(3).build().is_err());
}
