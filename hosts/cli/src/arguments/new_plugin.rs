//! The arguments of `host plugins new`.

use std::path::PathBuf;

use clap::Args;

use super::ConfigArguments;
use crate::sdk::Kind;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    host plugins new my-quantizer --kind quantizer\n  \
    host plugins new my-adapter --kind adapter --out plugins/my-adapter\n\n\
    The crate holds the sources of the interface that this host was built with and needs no other\n\
    checkout. docs/write-a-quantizer.md goes from here to a training run.")]
pub struct NewPluginArguments {
    /// The plugin's name: lower case letters, digits and `-`
    pub name: String,
    /// What it does for the core
    #[arg(long, value_enum)]
    pub kind: Kind,
    /// The crate's directory, which does not exist yet [default: the name]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    #[command(flatten)]
    pub config: ConfigArguments,
}
