//! What a key takes of the server's memory.

use grifo_tests::Server;
use grifo_tests::case::{ALGORITHMS, stored_key};
use tokio::runtime::Runtime;

use crate::contender::client;
use crate::keys;
use crate::targets::{Better, Verdict};

pub(crate) const TITLE: &str = "bytes per key";
pub(crate) const HITS: [usize; 2] = [1, 10];
const RULE: &str = "1000/min";
const HASH: &str = "two-field hash";
const MUST: f64 = 0.75;
const AIM: f64 = 0.65;

/// The token bucket that most scripts have: two fields, in floating point.
const HASH_SOURCE: &str = r"
local rate, burst = tonumber(ARGV[1]), tonumber(ARGV[2])
local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1000000
local state = redis.call('HMGET', KEYS[1], 'tokens', 'time')
local last = tonumber(state[2]) or now
local tokens = math.min(burst, (tonumber(state[1]) or burst) + (now - last) * rate)
local allowed = 0
if tokens >= 1 then
  tokens = tokens - 1
  allowed = 1
end
redis.call('HSET', KEYS[1], 'tokens', tostring(tokens), 'time', string.format('%.6f', now))
redis.call('PEXPIRE', KEYS[1], math.ceil(burst / rate * 1000))
return allowed
";

/// One state, and its bytes after each of [`HITS`].
#[derive(Clone, Debug)]
pub(crate) struct Bytes {
    pub(crate) state: &'static str,
    pub(crate) after: Vec<u64>,
}

pub(crate) fn measure(runtime: &Runtime, server: &Server) -> Result<Vec<Bytes>, String> {
    let mut all = Vec::new();
    let mut name = Vec::new();
    for algorithm in ALGORITHMS {
        let mut after = Vec::new();
        for hits in HITS {
            let key = runtime.block_on(hit(server, algorithm, hits))?;
            after.push(usage(server, &key));
            if algorithm == ALGORITHMS[0] {
                name = key;
            }
        }
        all.push(Bytes { state: algorithm, after });
    }
    all.push(Bytes { state: HASH, after: HITS.map(|hits| hash_after(server, &name, hits)).into() });
    Ok(all)
}

/// The name of the only key of the server afterwards.
async fn hit(server: &Server, algorithm: &str, hits: usize) -> Result<Vec<u8>, String> {
    server.command::<(), _>(&["FLUSHALL"]);
    let limiter = client(&server.url()).and_then(|it| it.limiter("api", format!("{algorithm} {RULE}")));
    let limiter = limiter.map_err(|error| error.to_string())?;
    for _ in 0..hits {
        let decision = limiter.check(keys::name(42)).await.map_err(|error| error.to_string())?;
        assert!(decision.allowed, "{RULE} allows {hits} hits");
    }
    Ok(stored_key(server))
}

fn hash_after(server: &Server, name: &[u8], hits: usize) -> u64 {
    server.command::<(), _>(&["FLUSHALL"]);
    for _ in 0..hits {
        let call: [&[u8]; 6] = [b"EVAL", HASH_SOURCE.as_bytes(), b"1", name, b"16.666666666666668", b"1000"];
        assert_eq!(server.command::<u8, _>(&call), 1, "{RULE} allows {hits} hits");
    }
    usage(server, name)
}

fn usage(server: &Server, key: &[u8]) -> u64 {
    server.command(&[b"MEMORY".as_slice(), b"USAGE", key, b"SAMPLES", b"0"])
}

/// The token bucket beside the hash, where that is at its best.
pub(crate) fn judge(all: &[Bytes]) -> Option<Verdict> {
    let after = |state: &str| all.iter().find(|bytes| bytes.state == state).map(|bytes| &bytes.after);
    let (bucket, hash) = (after(ALGORITHMS[0])?, after(HASH)?);
    let ratios = bucket.iter().zip(hash).map(|(bucket, hash)| *bucket as f64 / *hash as f64);
    Some(Verdict {
        what: format!("{TITLE}: {}", ALGORITHMS[0]),
        beside: format!("x {HASH}"),
        value: ratios.max_by(f64::total_cmp),
        better: Better::Less,
        must: MUST,
        aim: Some(AIM),
    })
}
