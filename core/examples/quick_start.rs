//! Limits one key and prints each answer.
//!
//! `cargo run -p grifo --example quick_start` runs it on memory; an argument such as `redis://localhost` names a server.

use grifo::Client;

#[tokio::main]
async fn main() -> Result<(), grifo::Error> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory://".to_owned());
    let client = Client::open(url)?;
    let api = client.limiter("api", "100/min burst 3")?;
    for call in 1..=5 {
        let decision = api.check("user:42").await?;
        if decision.allowed {
            println!("call {call}: allowed, {} left", decision.remaining);
        } else if let Some(wait) = decision.retry_after {
            println!("call {call}: denied, come back in {:.1} s", wait.as_secs_f64());
        }
        if decision.degraded() {
            println!("  the store did not answer; the failure policy did");
        }
    }
    Ok(())
}
