//! The arguments of `host train`.

use std::path::PathBuf;

use clap::Args;
use espalier_config::Sources;
use espalier_trainer::checkpoint::ResumeFrom;
use espalier_trainer::error::Error;
use espalier_trainer::recorded;

use super::RunArguments;
use super::unread::{self, Unread};

/// The flag that continues a run.
const RESUME: &str = "--resume";

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    host train --plugins nf4,lora --model models/llama --data train.jsonl --out runs/first\n  \
    host train --config configs/quickstart.toml --set optim.learning_rate=1e-4 --dry-run\n  \
    host train --resume runs/first\n  \
    host train --resume runs/first --set run.max_steps=2000")]
pub struct TrainArguments {
    #[command(flatten)]
    pub(super) run: RunArguments,
    /// Show the resolved config, where each value came from and the plan, and stop
    #[arg(long, conflicts_with = "resume")]
    pub dry_run: bool,
    /// Continue a run, from its newest checkpoint or from the one named (--resume=step-20): the run
    /// in DIR with all that is on record, or the run in --out with the settings given here
    #[arg(long, value_name = "STEP", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "newest", value_parser = resume_from)]
    pub resume: Option<ResumeFrom>,
    /// Output directory of the run to continue
    #[arg(value_name = "DIR", requires = "resume", conflicts_with = "out")]
    resumed: Option<PathBuf>,
    /// Show no progress
    #[arg(long)]
    pub quiet: bool,
}

impl TrainArguments {
    /// Refuses keys that a run does not read.
    ///
    /// # Errors
    /// As [`Unread::refuse`].
    pub fn check(&self) -> Result<(), Error> {
        self.run.config().refuse(&Unread {
            command: "train",
            keys: &[unread::COMPARISON],
            but: &[],
        })
    }

    /// All layers, those of the run that is continued first and the flags last.
    ///
    /// # Errors
    /// As [`recorded::of_run`].
    pub fn sources(&self) -> Result<Sources, Error> {
        let sources = self.run.sources();
        Ok(match &self.resumed {
            Some(run) => {
                let out = run.display().to_string();
                let sources = sources.recorded(RESUME, recorded::of_run(run)?);
                sources.flag(RESUME, "run.out", out)
            }
            None => sources,
        })
    }
}

/// `newest`, or a checkpoint's name.
fn resume_from(text: &str) -> Result<ResumeFrom, String> {
    let step = text.strip_prefix("step-").unwrap_or(text);
    match (text, step.parse()) {
        ("newest", _) => Ok(ResumeFrom::Newest),
        (_, Ok(step)) => Ok(ResumeFrom::Step(step)),
        _ => Err("expected a checkpoint's name, such as step-20".to_owned()),
    }
}
