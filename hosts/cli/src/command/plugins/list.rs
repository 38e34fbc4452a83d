//! `host plugins list`: tries every component found and shows why one does not work.

use std::io::{self, Write};
use std::sync::OnceLock;

use anyhow::Result;
use espalier_registry::{Listing, Probe, Registry, Status};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use super::{columns, probing_anew, search_path};
use crate::arguments::ListArguments;
use crate::display;

/// Characters of a hash that distinguish libraries.
const SHORT_HASH: usize = 12;

/// Lists all components.
pub fn run(arguments: &ListArguments, out: &mut dyn Write) -> Result<()> {
    let mut search = search_path(&arguments.config)?;
    if arguments.retry {
        search = probing_anew(search);
    }
    let mut registry = Registry::discover(&search);
    probe(&mut registry);
    let (listings, searched) = (registry.list(), registry.search().shown());
    if arguments.json {
        let value = json!({"components": listings, "searched": searched});
        writeln!(out, "{value:#}")?;
        return Ok(());
    }
    list(&listings, &searched, out)?;
    Ok(())
}

/// Tries libraries that were not tried before, with a bar on a terminal.
fn probe(registry: &mut Registry) {
    let bar: OnceLock<ProgressBar> = OnceLock::new();
    registry.probe_all(&|done, total| {
        let style = ProgressStyle::with_template("trying libraries {bar:24} {pos}/{len}");
        let bar = bar.get_or_init(|| {
            let bar = if display::draws() {
                display::add(ProgressBar::new(total as u64))
            } else {
                ProgressBar::hidden()
            };
            style.map_or(bar.clone(), |style| bar.with_style(style))
        });
        bar.set_position(done as u64);
    });
    if let Some(bar) = bar.get() {
        bar.finish_and_clear();
    }
}

fn list(listings: &[Listing], searched: &[String], out: &mut dyn Write) -> io::Result<()> {
    let head = ["NAME", "ROLE", "PLUGIN", "ABI", "SHA256", "PROBE", "FOUND"];
    let mut rows = vec![head.map(str::to_owned)];
    rows.extend(listings.iter().map(row));
    columns::write(&rows, out)?;
    writeln!(out, "\nsearched in this order:")?;
    for place in searched {
        writeln!(out, "  {place}")?;
    }
    Ok(())
}

fn row(listing: &Listing) -> [String; 7] {
    let found = match &listing.status {
        Status::Available => listing.location(),
        Status::Shadowed { by } => format!("{} (not used: {by} is first)", listing.location()),
        Status::Broken { reason } => format!("{} (broken: {reason})", listing.location()),
    };
    let found = match &listing.probe {
        Probe::Failed { reason } => format!("{found} ({reason})"),
        _ => found,
    };
    let abi = listing.abi.map(|[major, minor]| format!("{major}.{minor}"));
    let hash = listing.sha256.as_deref();
    let hash = hash.and_then(|hash| hash.get(..SHORT_HASH));
    let plugin = format!("{} {}", listing.plugin, listing.version);
    [
        listing.component.clone(),
        listing.role.clone(),
        plugin.trim().to_owned(),
        abi.unwrap_or_default(),
        hash.unwrap_or("-").to_owned(),
        listing.probe.word().to_owned(),
        found,
    ]
}
