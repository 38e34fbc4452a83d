//! The arguments of `host report`.

use std::path::{Path, PathBuf};

use clap::Args;

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  host report runs/first")]
pub struct ReportArguments {
    /// Output directory of a run or of a comparison that has ended or is running
    #[arg(value_name = "DIR", required_unless_present = "run")]
    directory: Option<PathBuf>,
    /// The same, as other commands take it
    #[arg(long, value_name = "DIR", conflicts_with = "directory")]
    run: Option<PathBuf>,
}

impl ReportArguments {
    /// The output directory.
    pub fn directory(&self) -> &Path {
        let named = self.directory.as_deref().or(self.run.as_deref());
        named.expect("the command line has one of the two")
    }
}
