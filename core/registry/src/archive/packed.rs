//! A built library and its licences -> an archive: `plugin.json`, the stripped library, the
//! licences. Equal inputs give equal bytes.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use espalier_system::files::{FileKind, hash_bytes, read_regular};
use flate2::{Compression, GzBuilder};
use tar::{Builder, EntryType, Header};

use super::archive_error::ArchiveError;
use super::plugin_manifest::{ArchivedFile, FORMAT, MANIFEST, PluginManifest, this_target};
use super::stripped::stripped;
use crate::library::{LibraryError, LibraryFile, WorldWritable};

/// Permission bits of the files.
const MODE: u32 = 0o644;

/// A packed plugin.
#[derive(Clone, Debug)]
pub struct PackedPlugin {
    /// What it holds.
    pub manifest: PluginManifest,
    /// The archive, a compressed tar file.
    pub archive: Vec<u8>,
    /// The stripped library.
    pub library: Vec<u8>,
    /// Bytes of the library before it was stripped.
    pub built_bytes: u64,
}

impl PackedPlugin {
    /// The archive's file name: `NAME-VERSION-TARGET.tar.gz`.
    pub fn file_name(&self) -> String {
        let PluginManifest {
            name,
            version,
            target,
            ..
        } = &self.manifest;
        format!("{name}-{version}-{target}.tar.gz")
    }
}

/// Packs the library at `path` with its licence's name and the files of the licence's text.
///
/// # Errors
/// A library with a fault, as for a run; one that cannot be stripped; a licence that cannot be
/// read.
pub fn pack(
    path: &Path,
    license: Option<String>,
    texts: &[PathBuf],
) -> Result<PackedPlugin, ArchiveError> {
    // The archive's user is protected by the folder that it is installed in.
    let file = LibraryFile::inspect(path, WorldWritable::Allowed);
    let descriptor = match (file.fault, file.descriptor) {
        (None, Some(descriptor)) => descriptor,
        (fault, _) => {
            let fault = fault.expect("without a descriptor there is a fault");
            return Err(ArchiveError::Library(LibraryError {
                path: file.path,
                fault,
            }));
        }
    };
    let built = read_regular(&file.path, FileKind::Library);
    let built = built.map_err(|error| error.of(&file.path))?;
    let library = stripped(&built).map_err(|reason| ArchiveError::Unstripped {
        path: file.path.clone(),
        reason,
    })?;
    let mut contents = Vec::new();
    for text in texts {
        let bytes = read_regular(text, FileKind::Content).map_err(|error| error.of(text))?;
        let name = text.file_name().unwrap_or_default().to_string_lossy();
        contents.push((archived(&name, &bytes), bytes));
    }
    let file_name = format!("lib{}.so", descriptor.name.replace('-', "_"));
    let manifest = PluginManifest {
        format: FORMAT,
        name: descriptor.name,
        version: descriptor.version,
        interface: descriptor.abi,
        target: this_target(),
        license,
        library: archived(&file_name, &library),
        license_files: contents.iter().map(|(file, _)| file.clone()).collect(),
        components: descriptor.components,
    };
    let archive = compressed(&manifest, &library, &contents);
    Ok(PackedPlugin {
        archive: archive.expect("memory takes all bytes"),
        manifest,
        library,
        built_bytes: built.len() as u64,
    })
}

fn archived(name: &str, bytes: &[u8]) -> ArchivedFile {
    ArchivedFile {
        file: name.to_owned(),
        bytes: bytes.len() as u64,
        sha256: hash_bytes(bytes),
    }
}

fn compressed(
    manifest: &PluginManifest,
    library: &[u8],
    texts: &[(ArchivedFile, Vec<u8>)],
) -> io::Result<Vec<u8>> {
    // Neither time nor name of the file is part of the archive.
    let writer = GzBuilder::new().write(Vec::new(), Compression::best());
    let mut tar = Builder::new(writer);
    let described = serde_json::to_string_pretty(manifest)? + "\n";
    append(&mut tar, MANIFEST, described.as_bytes())?;
    append(&mut tar, &manifest.library.file, library)?;
    for (file, bytes) in texts {
        append(&mut tar, &file.file, bytes)?;
    }
    tar.into_inner()?.finish()
}

fn append<W: Write>(tar: &mut Builder<W>, name: &str, bytes: &[u8]) -> io::Result<()> {
    let mut header = Header::new_ustar();
    header.set_entry_type(EntryType::Regular);
    header.set_size(bytes.len() as u64);
    header.set_mode(MODE);
    header.set_mtime(0);
    tar.append_data(&mut header, name, bytes)
}
