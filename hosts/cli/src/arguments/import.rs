//! The arguments of `host import`.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  host import axolotl.yml --out first.toml && host plan --config first.toml\n  \
    host import sft.yaml"
)]
pub struct ImportArguments {
    /// A config in YAML: of axolotl, or of TRL's scripts
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// The config that is written, in TOML [default: the standard output]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}
