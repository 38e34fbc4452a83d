//! `host plugins install`: an archive -> a plugin in a folder that is searched.

use std::io::Write;

use anyhow::Result;
use espalier_registry::archive::{self, InstalledPlugin, Replace};
use espalier_registry::{Registry, SearchPath, Status};
use espalier_system::shell::quoted;

use super::{components, search_path};
use crate::arguments::InstallArguments;

/// Checks the archive, installs its plugin, and says which components a run finds.
pub fn run(arguments: &InstallArguments, out: &mut dyn Write) -> Result<()> {
    let search = search_path(&arguments.config)?;
    let folder = match &arguments.to {
        Some(folder) => folder.clone(),
        None => archive::install_dir()?,
    };
    let replace = if arguments.replace {
        Replace::Allowed
    } else {
        Replace::Refused
    };
    let plugin = archive::unpack(&arguments.archive)?;
    let installed = archive::install(plugin, &arguments.archive, &folder, replace)?;
    let manifest = &installed.manifest;
    let word = if installed.was_there {
        "was installed already"
    } else {
        "is installed"
    };
    writeln!(
        out,
        "{} {} {word}: {}\n\n  \
         sha256      {}\n  \
         described   {}\n  \
         components  {}",
        manifest.name,
        manifest.version,
        installed.library.display(),
        manifest.library.sha256,
        installed.described.display(),
        components(manifest),
    )?;
    write_found(&installed, &search, out)
}

/// Says where a run finds other components than the installed ones.
fn write_found(
    installed: &InstalledPlugin,
    search: &SearchPath,
    out: &mut dyn Write,
) -> Result<()> {
    let listings = Registry::discover(search).list();
    let ours: Vec<_> = listings
        .iter()
        .filter(|one| one.file.as_ref() == Some(&installed.library))
        .collect();
    for listing in &ours {
        match &listing.status {
            Status::Available => {}
            Status::Shadowed { by } => {
                let name = &listing.component;
                writeln!(
                    out,
                    "\nnote: runs use the component `{name}` of {by}, found first"
                )?;
            }
            Status::Broken { reason } => writeln!(out, "\nnote: runs refuse it: {reason}")?,
        }
    }
    if ours.is_empty() {
        let folder = installed.library.parent().unwrap_or(&installed.library);
        let folder = quoted(&folder.display().to_string());
        writeln!(
            out,
            "\nnote: its folder is not searched: name it with --plugin-dir {folder}"
        )?;
    }
    Ok(())
}
