//! Each way in which the proxy misbehaves, seen through a plain client.

use std::time::Instant as StdInstant;

use redis::{Connection, RedisError, RedisResult};

use super::*;
use crate::server::Server;

/// Long enough for an answer on a busy machine.
const LONG: Duration = Duration::from_secs(10);
/// How long to wait for what must not come.
const SHORT: Duration = Duration::from_millis(150);

fn setup() -> (Server, Proxy, Connection) {
    let server = Server::start_default();
    let proxy = Proxy::start(server.addr());
    let connection = connect(&proxy).unwrap();
    (server, proxy, connection)
}

fn connect(proxy: &Proxy) -> RedisResult<Connection> {
    let connection = redis::Client::open(proxy.url())?.get_connection_with_timeout(LONG)?;
    connection.set_read_timeout(Some(LONG))?;
    Ok(connection)
}

fn incr(connection: &mut Connection) -> RedisResult<i64> {
    redis::cmd("INCR").arg("n").query(connection)
}

fn count(server: &Server) -> i64 {
    server.command::<Option<i64>, _>(&["GET", "n"]).unwrap_or(0)
}

fn timed_out(error: &RedisError) -> bool {
    error.is_timeout() || error.is_io_error()
}

#[test]
fn it_forwards_and_counts() {
    let (server, proxy, mut first) = setup();
    let mut second = connect(&proxy).unwrap();
    assert_eq!((incr(&mut first).unwrap(), incr(&mut second).unwrap(), count(&server)), (1, 2, 2));
    assert_eq!((proxy.accepted(), proxy.open()), (2, 2));
}

#[test]
fn it_delays_replies() {
    let (_server, proxy, mut connection) = setup();
    proxy.set(Mode::Delay(Duration::from_millis(60)));
    let start = StdInstant::now();
    assert_eq!(incr(&mut connection).unwrap(), 1);
    assert!(start.elapsed() >= Duration::from_millis(60));
}

#[test]
fn a_dropped_reply_belongs_to_a_request_that_ran() {
    let (server, proxy, mut connection) = setup();
    proxy.set(Mode::DropReplies);
    connection.set_read_timeout(Some(SHORT)).unwrap();
    assert!(timed_out(&incr(&mut connection).unwrap_err()));
    assert_eq!((count(&server), proxy.open()), (1, 1));
}

#[test]
fn it_closes_in_place_of_the_reply() {
    let (server, proxy, mut connection) = setup();
    proxy.set(Mode::CloseAfterRequest);
    assert!(incr(&mut connection).unwrap_err().is_connection_dropped());
    assert_eq!(count(&server), 1);
}

#[test]
fn a_stalled_request_does_not_run_until_the_stall_ends() {
    let (server, proxy, mut connection) = setup();
    proxy.set(Mode::Stall);
    connection.set_read_timeout(Some(SHORT)).unwrap();
    assert!(timed_out(&incr(&mut connection).unwrap_err()));
    assert_eq!(count(&server), 0);
    proxy.set(Mode::Forward);
    let late = incr(&mut connect(&proxy).unwrap()).unwrap();
    assert!((1..=2).contains(&late), "{late}");
}

#[test]
fn it_refuses_and_comes_back() {
    let (server, proxy, mut connection) = setup();
    proxy.set(Mode::Refuse);
    assert!(incr(&mut connection).is_err());
    let error = std::net::TcpStream::connect(proxy.addr()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    assert_eq!(proxy.open(), 0);
    proxy.set(Mode::Forward);
    assert_eq!(incr(&mut connect(&proxy).unwrap()).unwrap(), 1);
    assert_eq!((count(&server), proxy.accepted()), (1, 2));
}

#[test]
fn a_cut_closes_what_is_open_and_nothing_else() {
    let (_server, proxy, mut connection) = setup();
    proxy.cut();
    assert!(incr(&mut connection).is_err());
    assert_eq!(incr(&mut connect(&proxy).unwrap()).unwrap(), 1);
}
