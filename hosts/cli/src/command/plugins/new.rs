//! `host plugins new`: a name and a kind -> the crate of a plugin.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Result;
use espalier_registry::Listing;
use espalier_system::files::{FileError, PendingDirectory, refuse_existing, write_atomically};
use espalier_system::shell::quoted;
use espalier_trainer::error::Error;

use crate::arguments::NewPluginArguments;
use crate::sdk;

/// Writes the crate and prints the next steps; `listings` are the components that exist.
pub fn run(
    arguments: &NewPluginArguments,
    listings: &[Listing],
    out: &mut dyn Write,
) -> Result<()> {
    let name = &arguments.name;
    sdk::check_name(name, listings)?;
    let folder = arguments.out.clone().unwrap_or_else(|| PathBuf::from(name));
    write(&folder, &sdk::files(name, arguments.kind()?)).map_err(Error::from)?;
    let shown = quoted(&folder.display().to_string());
    let library = name.replace('-', "_");
    writeln!(
        out,
        "{shown} is a plugin's crate; start with src/lib.rs. Next:\n\n  \
         cd {shown}\n  \
         cargo test --release      # the conformance kit\n  \
         cargo build --release\n  \
         host plugins check target/release/lib{library}.so\n  \
         host plugins inspect {name} --plugin-dir target/release\n\n\
         README.md there says how to train with it."
    )?;
    Ok(())
}

/// Writes all files, or no file: an existing directory is refused.
fn write(folder: &Path, files: &[(String, String)]) -> Result<(), FileError> {
    refuse_existing(folder)?;
    let pending = PendingDirectory::begin(folder)?;
    for (name, text) in files {
        let path = pending.path().join(name);
        let inside = path.parent().expect("a file has a parent folder");
        fs::create_dir_all(inside).map_err(|source| FileError::Write {
            path: inside.to_owned(),
            source,
        })?;
        write_atomically(&path, text.as_bytes())?;
    }
    pending.commit()
}
