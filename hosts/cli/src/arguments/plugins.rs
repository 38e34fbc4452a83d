//! The arguments of `host plugins`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use espalier_trainer::error::Error;

use super::{
    CheckArguments, ConfigArguments, InstallArguments, NewPluginArguments, PackArguments, unread,
};

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  host plugins list\n  host plugins inspect nf4")]
pub struct PluginsArguments {
    #[command(subcommand)]
    pub command: PluginsCommand,
}

#[derive(Debug, Subcommand)]
pub enum PluginsCommand {
    /// List all components, where each was found, and whether it works
    List(ListArguments),
    /// Show one component: its plugin, its options with types, defaults and ranges
    Inspect(InspectArguments),
    /// Make a crate of a plugin of your own, which builds, loads and passes the kit as it is
    New(NewPluginArguments),
    /// Check a library's components: bytes, gradients, options, a training run that learns
    Check(CheckArguments),
    /// Pack a built plugin into one file that others install
    Pack(PackArguments),
    /// Install a packed plugin where runs find it
    Install(InstallArguments),
    /// Write the hashes of the libraries found, as a config that lets a run load no others
    Lock(LockArguments),
    /// Try a library in this process, for the process that asks
    #[command(hide = true)]
    Probe(ProbeArguments),
}

impl PluginsCommand {
    /// Refuses keys that the command does not read.
    ///
    /// # Errors
    /// [`Error::Usage`], naming the first such key.
    pub fn check(&self) -> Result<(), Error> {
        let sections = unread::SECTIONS;
        match self {
            PluginsCommand::List(list) => list.config.check_without_run("plugins list", sections),
            PluginsCommand::Inspect(inspect) => {
                let config = &inspect.config;
                config.check_without_run("plugins inspect", sections)
            }
            PluginsCommand::New(new) => new.config.check_without_run("plugins new", sections),
            PluginsCommand::Check(check) => check.config.check_without_run("plugins check", &[]),
            PluginsCommand::Pack(pack) => pack.config.check_without_run("plugins pack", sections),
            PluginsCommand::Install(install) => {
                let config = &install.config;
                config.check_without_run("plugins install", sections)
            }
            PluginsCommand::Lock(lock) => lock.config.check_without_run("plugins lock", sections),
            PluginsCommand::Probe(_) => Ok(()),
        }
    }
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  host plugins list --plugin-dir target/plugins\n  \
    host plugins list --json\n\n\
    Each library is opened in a separate process, once. One that crashes, exits or hangs\n\
    there is quarantined: no command opens it again, until it is rebuilt or --retry is given."
)]
pub struct ListArguments {
    #[command(flatten)]
    pub config: ConfigArguments,
    /// Try every library again, also quarantined ones
    #[arg(long)]
    pub retry: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  host plugins inspect nf4\n  \
    host plugins inspect target/release/libmy_quantizer.so")]
pub struct InspectArguments {
    /// The component's name, or a library's path
    pub name: String,
    #[command(flatten)]
    pub config: ConfigArguments,
    /// Try its library again, also if it was quarantined
    #[arg(long)]
    pub retry: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  \
    host plugins lock --plugin-dir plugins --out plugins.lock\n  \
    host train --config run.toml --config plugins.lock --plugin-dir plugins\n\n\
    With such a config a library of another hash, or one that is not named there, is refused\n\
    before any of it is loaded. Plugins that are linked into this program have no file of their\n\
    own and are not pinned: they change with the program alone.")]
pub struct LockArguments {
    #[command(flatten)]
    pub config: ConfigArguments,
    /// File to write or replace [default: standard output]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  host plugins probe target/release/libsample.so")]
pub struct ProbeArguments {
    /// The library
    pub file: PathBuf,
    /// The hash that it has to have
    #[arg(long, value_name = "HASH")]
    pub sha256: Option<String>,
    /// A component to call, with its options, as JSON
    #[arg(long, value_name = "JSON")]
    pub trial: Option<String>,
}
