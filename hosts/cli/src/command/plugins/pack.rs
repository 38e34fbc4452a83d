//! `host plugins pack`: a built plugin -> one file that others install.

use std::fs;
use std::io::Write;
use std::path::PathBuf;

use anyhow::Result;
use espalier_registry::archive::{self, ArchiveError, PackedPlugin};
use espalier_registry::{Registry, SearchPath};
use espalier_system::files::{FileError, hash_bytes, refuse_existing, write_atomically};
use espalier_system::shell::quoted;

use super::{components, megabytes, search_path};
use crate::arguments::PackArguments;

/// Packs the library, tries what was packed, and writes the archive.
pub fn run(arguments: &PackArguments, out: &mut dyn Write) -> Result<()> {
    let search = search_path(&arguments.config)?;
    let built = archive::find_built(&arguments.plugin, &arguments.license)?;
    let packed = archive::pack(&built.library, built.license, &built.license_files)?;
    let folder = arguments.out.clone().unwrap_or_else(|| PathBuf::from("."));
    let target = folder.join(packed.file_name());
    refuse_existing(&target)?;
    fs::create_dir_all(&folder).map_err(|source| FileError::Write {
        path: folder.clone(),
        source,
    })?;
    try_library(&packed, search)?;
    write_atomically(&target, &packed.archive)?;
    let (shown, manifest) = (target.display(), &packed.manifest);
    let licenses: Vec<&str> = manifest
        .license_files
        .iter()
        .map(|file| file.file.as_str())
        .collect();
    writeln!(
        out,
        "{shown}, {}\n\n  \
         sha256      {}\n  \
         library     {}, {} (built: {})\n  \
         sha256      {}\n  \
         interface   {}.{}\n  \
         machine     {}\n  \
         licence     {}\n  \
         components  {}\n\n\
         Others install it with\n\n  host plugins install {}",
        megabytes(packed.archive.len() as u64),
        hash_bytes(&packed.archive),
        manifest.library.file,
        megabytes(manifest.library.bytes),
        megabytes(packed.built_bytes),
        manifest.library.sha256,
        manifest.interface[0],
        manifest.interface[1],
        manifest.target,
        licenses.join(", "),
        components(manifest),
        quoted(&packed.file_name()),
    )?;
    Ok(())
}

/// Opens the stripped library in a process of its own and makes its components there.
fn try_library(packed: &PackedPlugin, search: SearchPath) -> Result<()> {
    let folder = tempfile::tempdir().map_err(|source| FileError::Write {
        path: std::env::temp_dir(),
        source,
    })?;
    let library = folder.path().join(&packed.manifest.library.file);
    write_atomically(&library, &packed.library)?;
    let mut registry = Registry::discover(&search.only(&library));
    registry.probe_all(&|_, _| ());
    match registry.broken().into_iter().next() {
        None => Ok(()),
        Some(error) => Err(ArchiveError::Library(error).into()),
    }
}
