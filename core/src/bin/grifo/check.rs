//! `grifo check`

use clap::Args;

use crate::args::{Output, Target};
use crate::{Outcome, decision};

/// Take tokens of a key if there are enough; ends with 0 when allowed and with 1 when denied
#[derive(Debug, Args)]
pub(crate) struct Check {
    #[command(flatten)]
    target: Target,

    /// Tokens to take from each Limit; 0 takes none
    #[arg(long, value_name = "N", default_value_t = 1, allow_negative_numbers = true)]
    cost: u64,

    #[command(flatten)]
    pub(crate) output: Output,
}

impl Check {
    pub(crate) async fn run(&self) -> Outcome {
        let limiter = self.target.limiter()?;
        let decision = limiter.check_n(self.target.key(), self.cost).await?;
        decision::print(&decision, limiter.limits(), &self.output)?;
        Ok(decision::exit_code(&decision))
    }
}
