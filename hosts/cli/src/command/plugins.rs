//! `host plugins`: the available components, and the options of one of them.

mod check;
mod columns;
mod inspect;
mod list;
mod new;

use std::io::Write;

use anyhow::Result;
use espalier_config::resolve;
use espalier_registry::probe::Prober;
use espalier_registry::{Registry, SearchPath, answer_probe};
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
