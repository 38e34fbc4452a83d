//! The arguments of `host config`.

use clap::Args;
use espalier_trainer::error::Error;

use super::{ConfigArguments, unread};

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  host config optim\n  host config quantizer.nf4\n  \
    host config --markdown"
)]
pub struct ConfigReferenceArguments {
    /// Show only this key, or the keys of this section
    #[arg(value_name = "KEY")]
    pub key: Option<String>,
    /// Print a page of Markdown
    #[arg(long)]
    pub markdown: bool,
    #[command(flatten)]
    pub config: ConfigArguments,
}

impl ConfigReferenceArguments {
    /// Refuses keys that this command does not read.
    ///
    /// # Errors
    /// [`Error::Usage`], naming the first such key.
    pub fn check(&self) -> Result<(), Error> {
        self.config.check_without_run("config", unread::SECTIONS)
    }
}
