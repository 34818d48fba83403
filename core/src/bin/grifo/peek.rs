//! `grifo peek`

use clap::Args;

use crate::args::{Output, Target};
use crate::{Outcome, decision};

/// Tell what a check of cost 1 would be answered, without taking or writing anything
#[derive(Debug, Args)]
pub(crate) struct Peek {
    #[command(flatten)]
    target: Target,

    #[command(flatten)]
    pub(crate) output: Output,
}

impl Peek {
    pub(crate) async fn run(&self) -> Outcome {
        let limiter = self.target.limiter()?;
        let decision = limiter.peek(self.target.key()).await?;
        decision::print(&decision, limiter.limits(), &self.output)?;
        Ok(decision::exit_code(&decision))
    }
}
