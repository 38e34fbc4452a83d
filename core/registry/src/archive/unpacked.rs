//! An archive -> its files, checked: names, sizes, hashes, machine and interface.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use espalier_system::files::{FileKind, hash_bytes, open_regular};
use flate2::read::GzDecoder;
use tar::{Archive, Entry, EntryType};

use super::archive_error::ArchiveError;
use super::plugin_manifest::{FORMAT, MANIFEST, PluginManifest, this_target};
use crate::library::{LibraryError, LibraryFault, is_served};

/// Most bytes of `plugin.json`.
const MANIFEST_BYTES: u64 = 16 << 20;

/// Most bytes of all files.
const ALL_BYTES: u64 = 4 << 30;

/// An archive's files in memory, checked against its manifest.
#[derive(Clone, Debug)]
pub struct UnpackedPlugin {
    /// What it holds.
    pub manifest: PluginManifest,
    /// Its other files by name, in the manifest's order.
    pub files: Vec<(String, Vec<u8>)>,
}

/// Reads the archive at `path` and checks it.
///
/// # Errors
/// An archive that is truncated, lacks a file or has another one; a member that is no plain file
/// of a plain name; another hash, machine or interface than expected.
pub fn unpack(path: &Path) -> Result<UnpackedPlugin, ArchiveError> {
    let (file, _) = open_regular(path, FileKind::Library).map_err(|error| error.of(path))?;
    Unpacking { path }.read(file)
}

/// The archive that is read, which its errors name.
struct Unpacking<'a> {
    path: &'a Path,
}

impl Unpacking<'_> {
    fn read(&self, file: File) -> Result<UnpackedPlugin, ArchiveError> {
        let mut archive = Archive::new(GzDecoder::new(file).take(ALL_BYTES));
        let mut manifest: Option<PluginManifest> = None;
        let mut found: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        let entries = archive.entries().map_err(|error| self.unread(error))?;
        for entry in entries {
            let mut entry = entry.map_err(|error| self.unread(error))?;
            let name = self.name(&entry)?;
            let Some(manifest) = &manifest else {
                let begun = self.manifest(&name, &mut entry)?;
                manifest = Some(begun);
                continue;
            };
            let file = manifest.files().find(|file| file.file == name);
            let file = file.ok_or_else(|| {
                self.damaged(format!("`{name}` is not one of the files of {MANIFEST}"))
            })?;
            let bytes = self.content(&mut entry, file.bytes)?;
            if found.insert(name.clone(), bytes).is_some() {
                return Err(self.damaged(format!("`{name}` is in it twice")));
            }
        }
        // The checksum comes after the last member.
        let mut rest = archive.into_inner();
        io::copy(&mut rest, &mut io::sink()).map_err(|error| self.unread(error))?;
        let manifest = manifest.ok_or_else(|| self.damaged(format!("it has no {MANIFEST}")))?;
        let files = self.checked(&manifest, found)?;
        Ok(UnpackedPlugin { manifest, files })
    }

    /// The name of a member, which is a plain file in no folder.
    fn name<R: Read>(&self, entry: &Entry<'_, R>) -> Result<String, ArchiveError> {
        let bytes = entry.path_bytes();
        let escapes = |what: String| ArchiveError::Escapes {
            path: self.path.to_owned(),
            found: what,
        };
        let shown = bytes.escape_ascii().to_string();
        let name = std::str::from_utf8(&bytes)
            .ok()
            .filter(|name| is_plain(name));
        let name = name.ok_or_else(|| escapes(format!("`{shown}`")))?;
        match entry.header().entry_type() {
            EntryType::Regular => Ok(name.to_owned()),
            other => Err(escapes(format!("`{name}`, of type {other:?}"))),
        }
    }

    /// The manifest, which is the first member.
    fn manifest<R: Read>(
        &self,
        name: &str,
        entry: &mut Entry<'_, R>,
    ) -> Result<PluginManifest, ArchiveError> {
        if name != MANIFEST {
            return Err(self.damaged(format!("it begins with `{name}`, expected {MANIFEST}")));
        }
        let size = entry.size();
        if size > MANIFEST_BYTES {
            return Err(self.damaged(format!("{MANIFEST} has {size} bytes")));
        }
        let text = self.content(entry, size)?;
        let unreadable = |error: serde_json::Error| self.damaged(format!("{MANIFEST}: {error}"));
        let value: serde_json::Value = serde_json::from_slice(&text).map_err(unreadable)?;
        if let Some(found) = value["format"]
            .as_u64()
            .filter(|&found| found > u64::from(FORMAT))
        {
            return Err(ArchiveError::Format {
                path: self.path.to_owned(),
                expected: FORMAT,
                found: u32::try_from(found).unwrap_or(u32::MAX),
            });
        }
        let manifest: PluginManifest = serde_json::from_value(value).map_err(unreadable)?;
        self.check(&manifest)?;
        Ok(manifest)
    }

    /// Checks what the manifest says of machine, interface and names.
    fn check(&self, manifest: &PluginManifest) -> Result<(), ArchiveError> {
        let (expected, found) = (this_target(), &manifest.target);
        if expected != *found {
            return Err(ArchiveError::Target {
                path: self.path.to_owned(),
                expected,
                found: found.escape_default().to_string(),
            });
        }
        if !is_served(manifest.interface) {
            return Err(ArchiveError::Library(LibraryError {
                path: self.path.to_owned(),
                fault: LibraryFault::Abi {
                    found: manifest.interface,
                },
            }));
        }
        if let Some(file) = manifest.files().find(|file| !is_plain(&file.file)) {
            return Err(ArchiveError::Escapes {
                path: self.path.to_owned(),
                found: format!("`{}`", file.file.escape_default()),
            });
        }
        let library = &manifest.library.file;
        let names: Vec<&String> = manifest.files().map(|file| &file.file).collect();
        let is_library = library.starts_with("lib") && library.ends_with(".so");
        let is_version = |byte: u8| byte.is_ascii_alphanumeric() || b".-+".contains(&byte);
        let faults = [
            (!is_library, format!("the library is called `{library}`")),
            (
                manifest.license_files.is_empty(),
                "it has no licence".to_owned(),
            ),
            (
                (1..names.len()).any(|at| names[..at].contains(&names[at])),
                "two files have one name".to_owned(),
            ),
            (
                !is_plain(&manifest.name) || !manifest.version.bytes().all(is_version),
                "name and version are not plain".to_owned(),
            ),
        ];
        match faults.into_iter().find(|(is_fault, _)| *is_fault) {
            None => Ok(()),
            Some((_, reason)) => Err(self.damaged(format!("{MANIFEST}: {reason}"))),
        }
    }

    /// A member's bytes, of which there are `size`.
    fn content<R: Read>(
        &self,
        entry: &mut Entry<'_, R>,
        size: u64,
    ) -> Result<Vec<u8>, ArchiveError> {
        let mut bytes = Vec::new();
        let read = entry.take(size.saturating_add(1)).read_to_end(&mut bytes);
        read.map_err(|error| self.unread(error))?;
        if bytes.len() as u64 == size {
            return Ok(bytes);
        }
        let found = bytes.len();
        Err(self.damaged(format!("a file of {size} bytes has {found} or more")))
    }

    /// The files in the manifest's order, each with the hash that it has there.
    fn checked(
        &self,
        manifest: &PluginManifest,
        mut found: BTreeMap<String, Vec<u8>>,
    ) -> Result<Vec<(String, Vec<u8>)>, ArchiveError> {
        let mut files = Vec::new();
        for file in manifest.files() {
            let bytes = found.remove(&file.file);
            let bytes = bytes.ok_or_else(|| self.damaged(format!("it lacks `{}`", file.file)))?;
            let hash = hash_bytes(&bytes);
            if hash != file.sha256 {
                return Err(ArchiveError::Hash {
                    path: self.path.to_owned(),
                    file: file.file.clone(),
                    expected: file.sha256.escape_default().to_string(),
                    found: hash,
                });
            }
            files.push((file.file.clone(), bytes));
        }
        Ok(files)
    }

    fn unread(&self, error: io::Error) -> ArchiveError {
        self.damaged(error.to_string())
    }

    fn damaged(&self, reason: String) -> ArchiveError {
        ArchiveError::Damaged {
            path: self.path.to_owned(),
            reason,
        }
    }
}

/// A file name without folders, made of letters, digits and `.`, `_`, `-`.
fn is_plain(name: &str) -> bool {
    let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let begins = name
        .bytes()
        .next()
        .is_some_and(|first| first.is_ascii_alphanumeric());
    begins && name.len() <= 200 && name.bytes().all(is_of_name)
}
