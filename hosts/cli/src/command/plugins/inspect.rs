//! `host plugins inspect`: all known facts of one component, or of all components of a library.

use std::io::{self, Write};
use std::path::Path;

use anyhow::Result;
use espalier_registry::{Listing, Registry, RegistryError, SearchPath, Status};
use espalier_trainer::error::Error;
use serde_json::json;

use super::{columns, probing_anew, search_path};
use crate::arguments::InspectArguments;

/// Shows the component of that name, or the library at that path.
pub fn run(arguments: &InspectArguments, out: &mut dyn Write) -> Result<()> {
    let mut search = search_path(&arguments.config)?;
    if arguments.retry {
        search = probing_anew(search);
    }
    let path = Path::new(&arguments.name);
    let by_path = is_path(path);
    if by_path {
        search = search.only(path);
    }
    let (listings, fault) = look(&search, (!by_path).then_some(arguments.name.as_str()));
    if arguments.json {
        writeln!(out, "{:#}", json!({"components": listings}))?;
    } else {
        for (index, listing) in listings.iter().enumerate() {
            if index > 0 {
                writeln!(out)?;
            }
            show(listing, out)?;
        }
    }
    fault.map_or(Ok(()), |error| Err(Error::from(error).into()))
}

/// A path rather than a component's name: names have only letters, digits and `-`.
fn is_path(path: &Path) -> bool {
    path.components().count() > 1 || path.extension().is_some_and(|end| end == "so")
}

/// The component `name`, or all components found, and the faults of their library.
fn look(search: &SearchPath, name: Option<&str>) -> (Vec<Listing>, Option<RegistryError>) {
    let mut registry = Registry::discover(search);
    match name {
        None => {
            registry.probe_all(&|_, _| ());
            let fault = registry.broken().into_iter().next();
            (registry.list(), fault.map(RegistryError::Library))
        }
        Some(name) => {
            registry.probe_named(name);
            match registry.inspect(name) {
                Ok(listing) => (vec![listing], None),
                Err(error) => {
                    let is_of_name = |listing: &Listing| listing.component == name;
                    let first = registry.list().into_iter().find(is_of_name);
                    (first.into_iter().collect(), Some(error))
                }
            }
        }
    }
}

fn show(listing: &Listing, out: &mut dyn Write) -> io::Result<()> {
    let name = &listing.component;
    writeln!(out, "{name}: {}", listing.doc)?;
    writeln!(out, "\nrole       {}", listing.role)?;
    writeln!(out, "plugin     {} {}", listing.plugin, listing.version)?;
    if let Some([major, minor]) = listing.abi {
        writeln!(out, "interface  {major}.{minor}")?;
    }
    writeln!(out, "found      {}", listing.location())?;
    if let Some(sha256) = &listing.sha256 {
        writeln!(out, "sha256     {sha256}")?;
    }
    writeln!(out, "probe      {}", listing.probe)?;
    match &listing.status {
        Status::Available => {}
        Status::Shadowed { by } => writeln!(out, "not used   {by} is first")?,
        Status::Broken { reason } => writeln!(out, "broken     {reason}")?,
    }
    for (capability, value) in &listing.capabilities {
        writeln!(out, "{capability}  {value}")?;
    }
    if listing.options.is_empty() {
        return writeln!(out, "\nit takes no options");
    }
    writeln!(out, "\noptions, in [{}.{name}]:", listing.role)?;
    let mut rows = vec![["NAME", "TYPE", "DEFAULT", "ALLOWED", ""].map(str::to_owned)];
    for option in &listing.options {
        let default = if option.default.is_null() {
            "unset".to_owned()
        } else {
            option.default.to_string()
        };
        let (kind, range) = (option.kind.clone(), option.range.clone());
        rows.push([
            option.name.clone(),
            kind,
            default,
            range,
            option.doc.clone(),
        ]);
    }
    columns::write(&rows, out)
}
