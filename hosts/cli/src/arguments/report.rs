//! The arguments of `host report`.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  host report runs/first")]
pub struct ReportArguments {
    /// Output directory of a run or of a comparison that has ended or is running
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
}
