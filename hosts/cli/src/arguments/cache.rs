//! The arguments of `host cache`.

use clap::{Args, Subcommand};

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  host cache\n  host cache clear --older-than 30\n\n\
    Runs keep each weight that they pack, and later runs of the same base, quantizer and options\n\
    take it from there. A changed weight, option or plugin is packed again. The cache is in\n\
    espalier/weights of XDG_CACHE_HOME (~/.cache); HOST_CACHE_DIR names another folder, or none if\n\
    it is empty. run.weight_cache_gb bounds it: the weights used least recently go first."
)]
pub struct CacheArguments {
    #[command(subcommand)]
    pub command: Option<CacheCommand>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Subcommand)]
pub enum CacheCommand {
    /// Remove the cached weights; runs that need them pack them again
    Clear(ClearArguments),
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  host cache clear\n  host cache clear --quantizer hqq")]
pub struct ClearArguments {
    /// Only weights that no run has used for so many days
    #[arg(long, value_name = "DAYS")]
    pub older_than: Option<u64>,
    /// Only weights that this quantizer packed
    #[arg(long, value_name = "NAME")]
    pub quantizer: Option<String>,
}
