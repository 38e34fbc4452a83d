//! The arguments of the commands that make a new model directory from another.

use clap::Args;
use espalier_config::Sources;
use espalier_trainer::error::Error;

use super::ConfigArguments;
use super::unread::{self, Unread};

/// The model, the plugins and the directory to write.
#[derive(Debug, Args)]
pub struct NewModelArguments {
    #[command(flatten)]
    config: ConfigArguments,
    /// Components by name, one a role
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    plugins: Vec<String>,
    /// Model directory, as Hugging Face lays it out
    #[arg(long, value_name = "DIR", overrides_with = "model")]
    model: Option<String>,
    /// Directory to write; it must not be there yet
    #[arg(long, value_name = "DIR", overrides_with = "out")]
    out: Option<String>,
    /// Worker threads; never changes a result
    #[arg(long, value_name = "N", overrides_with = "threads")]
    threads: Option<u64>,
    /// Show no progress
    #[arg(long)]
    pub quiet: bool,
}

impl NewModelArguments {
    /// Refuses keys that `command` does not read: keys of training and ranks, and `more`.
    ///
    /// # Errors
    /// As [`Unread::refuse`].
    pub fn check(&self, command: &str, more: &[&[&str]]) -> Result<(), Error> {
        self.check_with_numbers(command, &[&[unread::NUMBERS], more].concat())
    }

    /// As [`NewModelArguments::check`], of a command that holds the model in memory as well.
    ///
    /// # Errors
    /// As [`Unread::refuse`].
    pub fn check_with_numbers(&self, command: &str, more: &[&[&str]]) -> Result<(), Error> {
        let all = [unread::TRAINING, unread::COMPARISON, unread::RANKS];
        self.config.refuse(&Unread {
            command,
            keys: &[&all, more].concat(),
            but: &[],
        })
    }

    /// All layers, the flags last.
    pub fn sources(&self) -> Sources {
        let mut sources = self.config.sources();
        if !self.plugins.is_empty() {
            sources = sources.flag("--plugins", "plugins", self.plugins.clone());
        }
        for (flag, key, value) in [
            ("--model", "model.path", &self.model),
            ("--out", "run.out", &self.out),
        ] {
            if let Some(value) = value {
                sources = sources.flag(flag, key, value.as_str());
            }
        }
        if let Some(threads) = self.threads {
            sources = sources.flag("--threads", "run.threads", threads);
        }
        sources
    }
}
