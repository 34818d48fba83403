use std::time::Instant;

use super::*;
use crate::server_binary::installed;

#[test]
fn sentinels_replace_a_master_on_request_and_when_it_dies() {
    let begin = Instant::now();
    let mut all = Sentinels::start(installed()[0].kind);
    println!("sentinels ready after {:?}", begin.elapsed());
    assert_eq!((all.master(), all.servers().len(), all.sentinels().len()), (0, 3, 3));
    assert!(all.url().starts_with("redis+sentinel://127.0.0.1:") && all.url().ends_with("/mymaster"));
    all.server(0).command::<(), _>(&["SET", "k", "v"]);
    assert_eq!(all.server(0).command::<u8, _>(&["WAIT", "2", "5000"]), 2);

    let begin = Instant::now();
    let second = all.failover();
    println!("failover after {:?}", begin.elapsed());
    assert!(second != 0 && all.master() == second);

    let begin = Instant::now();
    assert_eq!(all.kill_master(), second);
    let third = all.wait_other_master(second);
    println!("replaced after {:?}", begin.elapsed());
    assert_eq!(all.server(third).command::<String, _>(&["GET", "k"]), "v");
    let begin = Instant::now();
    all.server_mut(second).restart();
    all.wait_ready();
    println!("rejoined {:?}", begin.elapsed());
    println!("{}", all.sentinels()[0].log());
    println!("=====\n{}", all.server(second).log());
    println!("second {second}");
    assert_eq!(all.master(), third);
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
    assert_ne!(all.failover(), 0);
}
