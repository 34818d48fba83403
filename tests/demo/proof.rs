//! What the limit allows over the time of the run, to the token.
//!
//! One call takes the whole burst, so from then on tokens only trickle in, one each 5 ms. At the end tokens are taken until
//! one is denied: then none is left, and all that came in since the first call were admitted to somebody. How many those
//! are is known from the store's own clock, read before and after both calls. Between the two readings the clock moves on a
//! little; as long as it passes no token on the way, both give the same number. Where it does, the call is made again.

use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use grifo::{Client, Decision, Error, Limiter};
use tokio::runtime::Runtime;

use crate::masters;
use crate::place::Place;
use crate::tally::Count;
use crate::{LIMIT, LIMITER, RATE, worker};

const SECOND: u64 = 1_000_000;
/// Two readings of the embedded store's clock, whose start lies within a microsecond, may each be off by one.
const CLOCK_GRAIN: u64 = 1;
/// The first call counts when the clock was read so closely around it; the last one then still finds a gap between tokens.
const CLOSE: u64 = SECOND / RATE / 4;
const ATTEMPTS: usize = 2000;
const PAUSE: Duration = Duration::from_micros(300);

/// Between which times, in microseconds, a call was decided.
#[derive(Debug, Clone, Copy)]
struct Span {
    earliest: u64,
    latest: u64,
}

pub(crate) struct Proof {
    runtime: Runtime,
    client: Client,
    limiter: Limiter,
    key: String,
    clock: Clock,
    start: Option<Span>,
}

enum Clock {
    Server(Box<redis::Connection>),
    Local(Instant),
}

#[derive(Debug, PartialEq)]
pub(crate) struct Verdict {
    pub(crate) clock: &'static str,
    pub(crate) seconds: f64,
    pub(crate) allowed: u64,
    pub(crate) by_crew: u64,
    pub(crate) left: u64,
}

impl Proof {
    /// Chooses a key that nobody has used, and finds the clock by which it is decided.
    pub(crate) fn new(place: &Place) -> Result<Self, String> {
        let runtime = worker::runtime()?;
        let client = worker::patient_client(&place.url())?;
        worker::connect(&runtime, &client)?;
        let limiter = client.limiter(LIMITER, LIMIT).map_err(|error| error.to_string())?;
        let key = unused_key();
        let clock = if place.is_embedded() {
            Clock::Local(Instant::now())
        } else if place.is_cluster() {
            Clock::Server(masters::connect_to_holder(&runtime, &client, &place.url(), &key)?)
        } else {
            Clock::Server(Box::new(masters::connect(&place.url())?))
        };
        Ok(Self { runtime, client, limiter, key, clock, start: None })
    }

    pub(crate) const fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    pub(crate) const fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) fn key(&self) -> &str {
        &self.key
    }

    /// The name and version of the server.
    pub(crate) fn server(&self) -> Result<String, String> {
        let pong = self.runtime.block_on(self.client.ping()).map_err(|error| error.to_string())?;
        Ok(format!("{} {}", pong.server, pong.version))
    }

    /// Empties the bucket.
    pub(crate) fn begin(&mut self) -> Result<(), String> {
        for _ in 0..ATTEMPTS {
            let (span, decision) = self.timed(RATE)?;
            if !decision.allowed {
                return Err("an unused bucket was not full".to_owned());
            }
            if span.latest - span.earliest <= CLOSE {
                self.start = Some(span);
                return Ok(());
            }
            let reset = self.runtime.block_on(self.limiter.reset(&self.key)).map_err(|error| error.to_string())?;
            if reset.remaining != RATE {
                return Err("a bucket that was reset is not full".to_owned());
            }
        }
        Err("this machine is too busy to read the clock closely".to_owned())
    }

    /// Takes what is left, and tells what the limit allows up to that moment.
    pub(crate) fn end(&mut self, counts: &[Count]) -> Result<Verdict, String> {
        let start = self.start.ok_or("the end comes after the beginning")?;
        let mut left = 0;
        for _ in 0..ATTEMPTS {
            let (span, decision) = self.timed(1)?;
            if decision.allowed {
                left += 1;
            } else if let Some(allowed) = tokens(start, span) {
                let clock = if matches!(self.clock, Clock::Server(_)) { "server's" } else { "monotonic" };
                let seconds = span.earliest.saturating_sub(start.latest) as f64 / SECOND as f64;
                let by_crew = counts.iter().map(|count| count.admitted).sum();
                return Ok(Verdict { clock, seconds, allowed, by_crew, left });
            } else {
                thread::sleep(PAUSE);
            }
        }
        Err("this machine is too busy to read the clock between two tokens".to_owned())
    }

    fn timed(&mut self, cost: u64) -> Result<(Span, Decision), String> {
        let before = self.clock.now()?;
        let decision: Result<Decision, Error> = self.runtime.block_on(self.limiter.check_n(&self.key, cost));
        let after = self.clock.now()?;
        let span = Span { earliest: before.saturating_sub(CLOCK_GRAIN), latest: after + CLOCK_GRAIN };
        Ok((span, decision.map_err(|error| error.to_string())?))
    }
}

impl Clock {
    fn now(&mut self) -> Result<u64, String> {
        match self {
            Self::Server(connection) => {
                let (seconds, micros): (u64, u64) =
                    redis::cmd("TIME").query(connection).map_err(|error| format!("the server's clock: {error}"))?;
                Ok(seconds * SECOND + micros)
            }
            Self::Local(start) => u64::try_from(start.elapsed().as_micros()).map_err(|error| error.to_string()),
        }
    }
}

fn unused_key() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{}-{}", std::process::id(), now.as_nanos())
}

/// How many tokens came in between two calls, if the readings of the clock leave no doubt.
fn tokens(start: Span, end: Span) -> Option<u64> {
    let least = end.earliest.saturating_sub(start.latest) * RATE / SECOND;
    let most = end.latest.saturating_sub(start.earliest) * RATE / SECOND;
    (least == most).then_some(least)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn span(earliest: u64, latest: u64) -> Span {
        Span { earliest, latest }
    }

    #[test]
    fn the_number_is_known_between_two_tokens() {
        assert_eq!(tokens(span(0, 100), span(5_100, 5_200)), Some(1));
        assert_eq!(tokens(span(0, 100), span(9_500, 9_999)), Some(1));
        assert_eq!(tokens(span(7, 9), span(8_000_100, 8_000_900)), Some(1600));
    }

    #[test]
    fn the_number_is_unknown_across_a_token() {
        assert_eq!(tokens(span(0, 100), span(5_000, 5_050)), None);
        assert_eq!(tokens(span(0, 100), span(9_900, 10_001)), None);
    }
}
