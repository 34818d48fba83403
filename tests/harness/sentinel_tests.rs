use super::*;
use crate::server_binary::installed;

#[test]
fn sentinels_replace_a_master_on_request() {
    let all = Sentinels::start(installed()[0].kind);
    assert_eq!((all.master(), all.servers().len(), all.sentinels().len()), (0, 3, 3));
    assert!(all.url().starts_with("redis+sentinel://127.0.0.1:") && all.url().ends_with("/mymaster"));
    let new = all.failover();
    assert!(new != 0 && all.master() == new);
}

#[test]
fn sentinels_replace_a_master_that_dies() {
    let mut all = Sentinels::start(installed()[0].kind);
    all.server(0).command::<(), _>(&["SET", "k", "v"]);
    assert_eq!(all.server(0).command::<u8, _>(&["WAIT", "2", "5000"]), 2);
    assert_eq!(all.kill_master(), 0);
    let new = all.wait_other_master(0);
    assert_eq!(all.server(new).command::<String, _>(&["GET", "k"]), "v");
    all.server_mut(0).restart();
    all.wait_ready();
    assert_eq!(all.master(), new);
}

#[test]
fn a_frozen_sentinel_is_not_waited_for() {
    let mut all = Sentinels::start(installed()[0].kind);
    all.sentinels()[0].stop();
    all.restart_sentinel(1);
    assert_eq!(all.master(), 0);
    all.sentinels()[0].cont();
    all.wait_ready();
}

#[test]
fn both_may_have_passwords() {
    let options = SentinelOptions {
        password: Some("servers".into()),
        sentinel_password: Some("sentinels".into()),
        ..SentinelOptions::new(installed()[0].kind)
    };
    let all = Sentinels::start_with(options);
    for (server, password) in [(all.server(1), "servers"), (&all.sentinels()[1], "sentinels")] {
        let client = redis::Client::open(server.url()).unwrap();
        let mut connection = client.get_connection().unwrap();
        let ping = redis::cmd("PING").query::<String>(&mut connection);
        assert!(ping.unwrap_err().to_string().to_lowercase().contains("auth"));
        redis::cmd("AUTH").arg(password).exec(&mut connection).unwrap();
    }
}
