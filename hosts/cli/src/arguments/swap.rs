//! The arguments of `host swap`.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    host swap --run runs/first quantizer=fp4\n  \
    host swap --run runs/first quantizer=my-quantizer --plugin-dir target/release\n  \
    host swap --run runs/first adapter=lora --set adapter.lora.alpha=64\n\n\
    The run continues in the same process, with its optimizer's state, its place in the rows and its\n\
    random numbers; nothing but base weights is read. The new plugin is tried beside the old one\n\
    first: where it fails, the run continues with the old one.")]
pub struct SwapArguments {
    /// What is to change: quantizer, adapter, sharding or backend, and the component that takes
    /// over
    #[arg(value_name = "ROLE=NAME")]
    pub assignment: String,
    /// Output directory of the running job
    #[arg(long, value_name = "DIR")]
    pub run: PathBuf,
    /// Change an option of that component, in TOML (adapter.lora.alpha=64); may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Folder searched before the run's own for plugin libraries; may be repeated
    #[arg(long, value_name = "DIR")]
    pub plugin_dir: Vec<PathBuf>,
    /// Take over before this step, counted from 1 [default: the next]
    #[arg(long, value_name = "STEP")]
    pub before_step: Option<u64>,
    /// Put the new weights into a mapped file until they take over, even where memory has room for
    /// both
    #[arg(long)]
    pub mapped: bool,
    /// Seconds to wait for the run; then the request is withdrawn [default: as long as the run
    /// lasts]
    #[arg(long, value_name = "SECS", conflicts_with = "no_wait")]
    pub timeout: Option<u64>,
    /// Do not wait for the run's answer
    #[arg(long)]
    pub no_wait: bool,
}
