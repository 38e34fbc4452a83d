//! The arguments of `host plugins pack` and `host plugins install`.

use std::path::PathBuf;

use clap::Args;

use super::ConfigArguments;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    host plugins pack my-quantizer\n  \
    host plugins pack target/release/libmy_quantizer.so --license LICENSE --out dist\n\n\
    The archive holds the library without symbols and debug information, plugin.json (name, version,\n\
    interface, machine, components and options, hashes) and the licence. It is tried before it is\n\
    written. The same library gives the same archive, to the byte.")]
pub struct PackArguments {
    /// The plugin's crate, or its built library
    pub plugin: PathBuf,
    /// Folder of the archive [default: the current one]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// A licence's text; may be repeated [default: LICENSE*, LICENCE* and COPYING* of the crate]
    #[arg(long, value_name = "FILE")]
    pub license: Vec<PathBuf>,
    #[command(flatten)]
    pub config: ConfigArguments,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    host plugins install my-quantizer-0.1.0-x86_64-unknown-linux-gnu.tar.gz\n  \
    host plugins install my-quantizer-0.1.0-x86_64-unknown-linux-gnu.tar.gz --to plugins\n\n\
    Hashes, machine and interface are checked before anything is written, and no code of the\n\
    library runs. A plugin is code: install only what you trust.")]
pub struct InstallArguments {
    /// An archive that `host plugins pack` made
    pub archive: PathBuf,
    /// Folder to install into [default: `plugins` in the user's data directory, which is searched]
    #[arg(long, value_name = "DIR")]
    pub to: Option<PathBuf>,
    /// Replace another version of the plugin
    #[arg(long)]
    pub replace: bool,
    #[command(flatten)]
    pub config: ConfigArguments,
}
