//! Every reply by which a server refuses, provoked on each version: its words, the kind of error that they are, and what the
//! client does about it. The table is `tests/vectors/server_replies.json`.
//!
//! With `GRIFO_WRITE=1` the columns of the servers of this machine are written anew.

mod cluster;
mod scene;
mod standalone;
mod table;

use grifo_tests::{ServerKind, server_binary};

use crate::table::Row;

/// Plays every situation on one version, and compares with the table.
async fn play(kind: ServerKind) {
    if server_binary::is_overridden() || server_binary::find(kind).is_none() {
        println!("{kind} is not installed here");
        return;
    }
    let mut rows: Vec<Row> = standalone::rows(kind).await;
    rows.extend(cluster::rows(kind).await);
    table::compare(kind, &rows);
}

#[tokio::test]
async fn replies_of_valkey_9_1() {
    play(ServerKind::Valkey91).await;
}

#[tokio::test]
async fn replies_of_redis_6_2() {
    play(ServerKind::Redis62).await;
}

#[tokio::test]
async fn replies_of_redis_7_0() {
    play(ServerKind::Redis70).await;
}

#[tokio::test]
async fn replies_of_redis_8_2() {
    play(ServerKind::Redis82).await;
}
