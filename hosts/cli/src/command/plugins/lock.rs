//! `host plugins lock`: the libraries found -> a config with their hashes.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

use anyhow::Result;
use espalier_registry::{Listing, Registry, Status};
use espalier_system::files::write_atomically;

use super::search_path;
use crate::arguments::LockArguments;

/// Writes the hashes of the libraries that runs use.
pub fn run(arguments: &LockArguments, out: &mut dyn Write) -> Result<()> {
    let mut search = search_path(&arguments.config)?;
    // The pins of an earlier lock are what is written anew.
    search.pins.clear();
    let text = locked(&Registry::discover(&search).list());
    match &arguments.out {
        None => out.write_all(text.as_bytes())?,
        Some(path) => {
            write_atomically(path, text.as_bytes())?;
            writeln!(out, "wrote {}; use it with --config", path.display())?;
        }
    }
    Ok(())
}

/// The config: a key for each plugin with a usable library.
fn locked(listings: &[Listing]) -> String {
    let mut pinned: BTreeMap<&str, String> = BTreeMap::new();
    let mut linked: BTreeSet<&str> = BTreeSet::new();
    let usable = listings
        .iter()
        .filter(|one| one.status == Status::Available);
    for listing in usable {
        match (&listing.file, &listing.sha256) {
            (Some(file), Some(sha256)) => {
                let (plugin, version) = (&listing.plugin, &listing.version);
                let line = format!(
                    "# {version}, {}\n{plugin} = \"{sha256}\"\n",
                    file.display().to_string().escape_debug()
                );
                // The first library of a plugin is the one that its components come from.
                pinned.entry(plugin).or_insert(line);
            }
            _ => drop(linked.insert(&listing.plugin)),
        }
    }
    let linked: Vec<&str> = linked
        .into_iter()
        .filter(|plugin| !pinned.contains_key(plugin))
        .collect();
    let mut text =
        "# Written by `host plugins lock`: a run with this config loads these libraries alone.\n"
            .to_owned();
    if !linked.is_empty() {
        text += "# Linked into the program, which has no file for them, and not pinned:\n";
        for plugins in linked.chunks(8) {
            text += &format!("#   {}\n", plugins.join(", "));
        }
    }
    text += "\n[run.plugin_hashes]\n";
    text.extend(pinned.into_values());
    text
}
