//! `host plugins`: the available components, and the options of one of them.

mod check;
mod columns;
mod inspect;
mod install;
mod list;
mod lock;
mod new;
mod pack;

use std::io::Write;

use anyhow::Result;
use espalier_config::resolve;
use espalier_registry::archive::PluginManifest;
use espalier_registry::probe::Prober;
use espalier_registry::{Registry, SearchPath, answer_probe};
use espalier_system::number::significant;
use espalier_trainer::error::Error;

use crate::arguments::{ConfigArguments, PluginsCommand};

/// Lists all components, shows one, or tries a library.
pub fn run(command: &PluginsCommand, out: &mut dyn Write) -> Result<()> {
    command.check()?;
    match command {
        PluginsCommand::List(arguments) => list::run(arguments, out),
        PluginsCommand::Inspect(arguments) => inspect::run(arguments, out),
        PluginsCommand::Probe(arguments) => Ok(answer_probe(
            &arguments.file,
            arguments.sha256.as_deref(),
            arguments.trial.as_deref(),
        )?),
        PluginsCommand::Check(arguments) => check::run(arguments, out),
        PluginsCommand::Pack(arguments) => pack::run(arguments, out),
        PluginsCommand::Install(arguments) => install::run(arguments, out),
        PluginsCommand::Lock(arguments) => lock::run(arguments, out),
        PluginsCommand::New(arguments) => {
            let registry = Registry::discover(&search_path(&arguments.config)?);
            Ok(new::run(arguments, &registry.list(), out)?)
        }
    }
}

/// Where plugins are looked for.
fn search_path(arguments: &ConfigArguments) -> Result<SearchPath> {
    let resolved = resolve(&arguments.sources()).map_err(Error::from)?;
    Ok(SearchPath::of(&resolved))
}

/// The same search, which tries quarantined libraries again.
fn probing_anew(mut search: SearchPath) -> SearchPath {
    search.prober = search.prober.map(Prober::anew);
    search
}

/// The components of an archive with their roles, in one line.
fn components(manifest: &PluginManifest) -> String {
    let components = manifest.components.iter();
    let shown = components.map(|one| format!("{} ({})", one.name, one.role));
    shown.collect::<Vec<_>>().join(", ")
}

/// A number of bytes as `1.2 MB`.
fn megabytes(bytes: u64) -> String {
    format!("{} MB", significant(bytes as f64 / 1e6, 3))
}
