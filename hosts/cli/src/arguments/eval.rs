//! The arguments of `host eval`.

use std::path::PathBuf;

use clap::Args;
use espalier_config::Sources;
use espalier_trainer::error::Error;
use espalier_trainer::recorded;

use super::unread::{self, Unread};
use super::{RUN, RowsArguments, with_flag};

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    host eval --model models/llama --data held-out.jsonl\n  \
    host eval --run runs/first --data held-out.jsonl --json\n  \
    host eval --model models/llama --adapter runs/first/adapter --plugins nf4 --data held-out.jsonl")]
pub struct EvalArguments {
    #[command(flatten)]
    rows: RowsArguments,
    /// Output directory of a training run: its model, plugins, options, adapter and held-out files
    #[arg(long, value_name = "DIR")]
    run: Option<PathBuf>,
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
    /// All layers, those of the run first and the flags last.
    ///
    /// # Errors
    /// As [`recorded::of_rows`].
    pub fn sources(&self) -> Result<Sources, Error> {
        let mut sources = self.rows.sources();
        if let Some(run) = &self.run {
            sources = sources.recorded(RUN, recorded::of_rows(run)?);
        }
        Ok(with_flag(
            sources,
            "--answers",
            "run.eval_answers",
            self.answers,
        ))
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
