//! A checked archive -> its library in a folder that is searched for plugins, and beside it a
//! folder with `plugin.json` and the licences.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use espalier_system::files::{FileError, hash_file, write_atomically};

use super::archive_error::ArchiveError;
use super::plugin_manifest::{MANIFEST, PluginManifest};
use super::unpacked::UnpackedPlugin;
use crate::data_dir::data_dir;
use crate::library::{LibraryError, LibraryFault, LibraryFile, WorldWritable, described};

/// What to do with another library that is installed under the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replace {
    /// It is replaced.
    Allowed,
    /// The installation is refused.
    Refused,
}

/// An installed plugin.
#[derive(Clone, Debug)]
pub struct InstalledPlugin {
    /// The library.
    pub library: PathBuf,
    /// The folder with `plugin.json` and licences.
    pub described: PathBuf,
    /// Whether this library was there before.
    pub was_there: bool,
    /// What was installed.
    pub manifest: PluginManifest,
}

/// The folder that plugins are installed into where no other is named: `plugins` in the user's
/// data directory.
///
/// # Errors
/// [`ArchiveError::NoFolder`].
pub fn install_dir() -> Result<PathBuf, ArchiveError> {
    let dir = data_dir().ok_or(ArchiveError::NoFolder)?;
    Ok(dir.join("plugins"))
}

/// Installs `plugin`, from the archive at `from`, into `folder`, which is created where missing.
/// Nothing of the library runs.
///
/// # Errors
/// A library that describes another plugin than the manifest, or that could not be opened from
/// `folder`; another library of its name, unless it may be replaced; files that cannot be written.
pub fn install(
    plugin: UnpackedPlugin,
    from: &Path,
    folder: &Path,
    replace: Replace,
) -> Result<InstalledPlugin, ArchiveError> {
    let UnpackedPlugin { manifest, files } = plugin;
    check_described(&manifest, &files[0].1, from)?;
    let library = folder.join(&manifest.library.file);
    let was_there = was_installed(&library, &manifest, replace)?;
    create(folder)?;
    let described = folder.join(&manifest.name);
    create(&described)?;
    let mut text = serde_json::to_string_pretty(&manifest).expect("plain values");
    text.push('\n');
    write_atomically(&described.join(MANIFEST), text.as_bytes())?;
    for (name, bytes) in &files[1..] {
        write_atomically(&described.join(name), bytes)?;
    }
    // The library comes last: where it is, all else is.
    if !was_there {
        write_atomically(&library, &files[0].1)?;
        set_mode(&library, 0o644)?;
    }
    let file = LibraryFile::inspect(&library, WorldWritable::Refused);
    match file.fault {
        None => Ok(InstalledPlugin {
            library: file.path,
            described,
            was_there,
            manifest,
        }),
        Some(fault) => Err(ArchiveError::Library(LibraryError {
            path: file.path,
            fault,
        })),
    }
}

/// Whether this very library is there already.
fn was_installed(
    library: &Path,
    manifest: &PluginManifest,
    replace: Replace,
) -> Result<bool, ArchiveError> {
    if library.symlink_metadata().is_err() {
        return Ok(false);
    }
    let installed = hash_file(library)?.sha256;
    let new = &manifest.library.sha256;
    if installed == *new {
        return Ok(true);
    }
    if replace == Replace::Allowed {
        return Ok(false);
    }
    Err(ArchiveError::Installed {
        path: library.to_owned(),
        installed,
        new: new.clone(),
    })
}

/// Checks the library's own descriptor before anything is written.
fn check_described(
    manifest: &PluginManifest,
    library: &[u8],
    from: &Path,
) -> Result<(), ArchiveError> {
    let fault = |fault: LibraryFault| {
        let path = from.to_owned();
        ArchiveError::Library(LibraryError { path, fault })
    };
    if described(library).map_err(fault)? == manifest.descriptor() {
        return Ok(());
    }
    let message = format!("its library describes another plugin than {MANIFEST}");
    Err(fault(LibraryFault::Descriptor(message)))
}

/// Creates a folder that only its owner may write; an existing one stays as it is.
fn create(folder: &Path) -> Result<(), FileError> {
    if folder.is_dir() {
        return Ok(());
    }
    fs::create_dir_all(folder).map_err(|source| FileError::Write {
        path: folder.to_owned(),
        source,
    })?;
    set_mode(folder, 0o755)
}

fn set_mode(path: &Path, mode: u32) -> Result<(), FileError> {
    let permissions = fs::Permissions::from_mode(mode);
    fs::set_permissions(path, permissions).map_err(|source| FileError::Write {
        path: path.to_owned(),
        source,
    })
}
