//! The arguments of `host eval`.

use clap::Args;
use espalier_config::Sources;
use espalier_trainer::error::Error;

use super::unread::{self, Unread};
use super::{RowsArguments, with_flag};

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    host eval --model models/llama --data held-out.jsonl\n  \
    host eval --model models/llama --adapter runs/first/adapter --plugins nf4 --data held-out.jsonl --json")]
pub struct EvalArguments {
    #[command(flatten)]
    rows: RowsArguments,
    /// Also answer the first N rows, greedily, and count exact matches with their trained part
    #[arg(long, value_name = "N")]
    answers: Option<u64>,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
    /// Show no progress
    #[arg(long)]
    pub quiet: bool,
}

impl EvalArguments {
    /// All layers, the flags last.
    pub fn sources(&self) -> Sources {
        let sources = self.rows.sources();
        with_flag(sources, "--answers", "run.eval_answers", self.answers)
    }

    /// Refuses keys that this command does not read.
    ///
    /// # Errors
    /// As [`Unread::refuse`].
    pub fn check(&self) -> Result<(), Error> {
        self.rows.config().refuse(&Unread {
            command: "eval",
            keys: &[unread::TRAINING, unread::COMPARISON, unread::OUTPUT],
            but: &[],
        })
    }
}
