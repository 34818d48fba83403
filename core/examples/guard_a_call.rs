//! Keeps all processes of a service together within what a paid third party allows: each call waits for its turn, and gives
//! its token back when it turns out that nothing was sent.
//!
//! `cargo run -p grifo --example guard_a_call` runs it on memory; an argument such as `redis://localhost` names a server.

use std::time::Duration;

use grifo::{Client, Error, FailurePolicy, Limiter};

/// Longer than this no caller is kept waiting.
const MAX_WAIT: Duration = Duration::from_secs(2);

#[tokio::main]
async fn main() -> Result<(), Error> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory://".to_owned());
    // Every call costs money, so none is made on a guess while the store is away.
    let client = Client::builder(url).on_failure(FailurePolicy::Closed).build()?;
    let geocoder = client.limiter("geocoder", "5/s burst 2 + 1000/d")?;
    for address in ["Main Street 1", "", "Main Street 2", "Main Street 3", "Main Street 4"] {
        match locate(&geocoder, address).await? {
            Some(place) => println!("{address:?} is at {place}"),
            None => println!("{address:?}: not looked up"),
        }
    }
    Ok(())
}

/// Looks an address up as soon as the limit lets it.
async fn locate(geocoder: &Limiter, address: &str) -> Result<Option<String>, Error> {
    let decision = geocoder.acquire("account", 1, MAX_WAIT).await?;
    if !decision.allowed {
        return Ok(None);
    }
    let place = call_the_third_party(address).await;
    if place.is_none() {
        let after = geocoder.refund("account", 1).await?;
        println!("nothing was sent: {} left", after.remaining);
    }
    Ok(place)
}

/// Stands for the call that is paid for. It sends nothing when there is nothing to ask.
async fn call_the_third_party(address: &str) -> Option<String> {
    if address.is_empty() {
        return None;
    }
    tokio::time::sleep(Duration::from_millis(20)).await;
    Some(format!("{} degrees north", address.len()))
}
