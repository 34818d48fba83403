//! `grifo reset`

use std::process::ExitCode;

use clap::Args;

use crate::args::{Output, Target};
use crate::{Outcome, decision};

/// Forget what a key has used up; answers like peek
#[derive(Debug, Args)]
pub(crate) struct Reset {
    #[command(flatten)]
    target: Target,

    #[command(flatten)]
    pub(crate) output: Output,
}

impl Reset {
    pub(crate) async fn run(&self) -> Outcome {
        let limiter = self.target.limiter()?;
        let decision = limiter.reset(self.target.key()).await?;
        decision::print(&decision, limiter.limits(), &self.output)?;
        Ok(ExitCode::SUCCESS)
    }
}
