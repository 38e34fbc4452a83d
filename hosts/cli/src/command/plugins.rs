//! `host plugins`: which components there are, and what one of them takes.

mod new;

use std::io::{self, Write};

use anyhow::Result;
use espalier_trainer::config::resolve;
use espalier_trainer::error::Error;
use espalier_trainer::registry::{Listing, Registry, SearchPath, Status};

use crate::arguments::{ConfigArguments, PluginsCommand};

/// Lists all components, or shows one.
pub fn run(command: &PluginsCommand, out: &mut dyn Write) -> Result<()> {
    match command {
        PluginsCommand::List(arguments) => {
            let registry = discover(&arguments.config)?;
            list(&registry.list(), &registry.search().shown(), out)?;
        }
        PluginsCommand::Inspect(arguments) => {
            let registry = discover(&arguments.config)?;
            let listing = registry.inspect(&arguments.name).map_err(Error::from)?;
            inspect(&listing, out)?;
        }
        PluginsCommand::New(arguments) => {
            let registry = discover(&arguments.config)?;
            new::run(arguments, &registry.list(), out)?;
        }
    }
    Ok(())
}

fn discover(arguments: &ConfigArguments) -> Result<Registry> {
    let resolved = resolve(&arguments.sources()).map_err(Error::from)?;
    Ok(Registry::discover(&SearchPath::of(&resolved)))
}

fn list(listings: &[Listing], searched: &[String], out: &mut dyn Write) -> io::Result<()> {
    let mut rows = vec![["NAME", "ROLE", "PLUGIN", "FOUND"].map(str::to_owned)];
    for listing in listings {
        let found = match &listing.status {
            Status::Available => listing.location(),
            Status::Shadowed { by } => format!("{} (not used: {by} is first)", listing.location()),
            Status::Broken { reason } => format!("{} (broken: {reason})", listing.location()),
        };
        rows.push([
            listing.component.clone(),
            listing.role.clone(),
            format!("{} {}", listing.plugin, listing.version),
            found,
        ]);
    }
    write_columns(&rows, out)?;
    writeln!(out, "\nsearched in this order:")?;
    for place in searched {
        writeln!(out, "  {place}")?;
    }
    Ok(())
}

fn inspect(listing: &Listing, out: &mut dyn Write) -> io::Result<()> {
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
    for (capability, value) in &listing.capabilities {
        writeln!(out, "{capability}  {value}")?;
    }
    if listing.options.is_empty() {
        return writeln!(out, "\nit takes no options");
    }
    writeln!(out, "\noptions, in [{}.{name}]:", listing.role)?;
    let mut rows = vec![["NAME", "TYPE", "DEFAULT", "ALLOWED", ""].map(str::to_owned)];
    for option in &listing.options {
        let default = match option.default.is_null() {
            true => "unset".to_owned(),
            false => option.default.to_string(),
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
    write_columns(&rows, out)
}

/// Rows with every column but the last as wide as its widest entry.
fn write_columns<const N: usize>(rows: &[[String; N]], out: &mut dyn Write) -> io::Result<()> {
    let width = |column: usize| {
        let widths = rows.iter().map(|row| row[column].chars().count());
        widths.max().unwrap_or(0)
    };
    for row in rows {
        let mut line = String::new();
        for (column, entry) in row.iter().enumerate() {
            let width = if column + 1 == N {
                0
            } else {
                width(column) + 2
            };
            line.push_str(&format!("{entry:<width$}"));
        }
        writeln!(out, "  {}", line.trim_end())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::write_columns;

    #[test]
    fn columns_are_aligned_and_no_line_ends_in_spaces() {
        let rows = [["a", "bb", "c"], ["long", "b", ""]].map(|row| row.map(str::to_owned));
        let mut out = Vec::new();
        write_columns(&rows, &mut out).expect("a vector takes all");
        assert_eq!(out, b"  a     bb  c\n  long  b\n");
    }
}
