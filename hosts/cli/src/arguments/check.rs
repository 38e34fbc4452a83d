//! The arguments of `host plugins check`.

use std::path::PathBuf;

use clap::Args;

use super::ConfigArguments;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    host plugins check target/release/libmy_quantizer.so\n  \
    host plugins check libmy_quantizer.so --set quantizer.my-quantizer.block_size=32\n  \
    host plugins check libmy_quantizer.so --only error.blocks\n  \
    host plugins check nf4 --json\n\n\
    Every component is tried with its defaults and with the bounds and alternatives of its options;\n\
    one that --set gives keeps that value. Exit code 5 where a check failed.")]
pub struct CheckArguments {
    /// The plugin's library, or the name of a component that is found
    pub library: String,
    /// Check only the library's component of this name; may be repeated
    #[arg(long, value_name = "NAME")]
    pub component: Vec<String>,
    /// Run only the checks of this name, or whose names begin so: `error`, `train`; may be repeated
    #[arg(long, value_name = "CHECK")]
    pub only: Vec<String>,
    /// For a model family: the config.json to try, instead of its own sample
    #[arg(long, value_name = "FILE")]
    pub model_config: Option<PathBuf>,
    /// Print JSON: for each component its checks, asserts, outcomes and reasons
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub config: ConfigArguments,
}
