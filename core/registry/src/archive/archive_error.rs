//! Why a plugin cannot be packed, or an archive not be installed.

use std::path::PathBuf;

use espalier_system::failure::{ExitClass, Failure};
use espalier_system::files::FileError;

use crate::library::LibraryError;

/// A failure of packing or installing a plugin.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArchiveError {
    /// The library cannot be used.
    #[error("plugin library {0}")]
    Library(#[from] LibraryError),
    /// A file or folder cannot be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// The library's tables cannot be rewritten.
    #[error("plugin library {} cannot be stripped: {reason}", path.display())]
    Unstripped {
        /// The library.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// No licence was found.
    #[error("no licence file in {}: expected LICENSE, LICENCE or COPYING", folder.display())]
    NoLicense {
        /// The crate's folder.
        folder: PathBuf,
    },
    /// A folder has no built library.
    #[error("{} holds no built plugin library: looked for {looked_for}", folder.display())]
    NotBuilt {
        /// The crate's folder.
        folder: PathBuf,
        /// The paths that were tried.
        looked_for: String,
    },
    /// The archive is truncated, or none.
    #[error("{} is no complete plugin archive: {reason}", path.display())]
    Damaged {
        /// The archive.
        path: PathBuf,
        /// What is missing or wrong.
        reason: String,
    },
    /// A member has a name that would leave the folder, or is not a plain file.
    #[error("{} holds {found}, expected plain files without folders", path.display())]
    Escapes {
        /// The archive.
        path: PathBuf,
        /// The member.
        found: String,
    },
    /// The archive was packed in a later format.
    #[error("{} has format {found}, this host reads {expected}", path.display())]
    Format {
        /// The archive.
        path: PathBuf,
        /// This host's.
        expected: u32,
        /// The archive's.
        found: u32,
    },
    /// It is for another machine.
    #[error("{} is for {found}, expected {expected}", path.display())]
    Target {
        /// The archive.
        path: PathBuf,
        /// This host's.
        expected: String,
        /// The archive's.
        found: String,
    },
    /// A file is another than the manifest says.
    #[error(
        "`{file}` in {} is not what was packed: expected sha256 {expected}, found {found}",
        path.display()
    )]
    Hash {
        /// The archive.
        path: PathBuf,
        /// The file in it.
        file: String,
        /// The hash in the manifest.
        expected: String,
        /// The hash of the bytes.
        found: String,
    },
    /// Another library is installed under the name.
    #[error(
        "{} is installed already, with sha256 {installed}; the archive's has {new}",
        path.display()
    )]
    Installed {
        /// The library.
        path: PathBuf,
        /// Its hash.
        installed: String,
        /// The hash of the library in the archive.
        new: String,
    },
    /// There is no folder to install into.
    #[error("neither XDG_DATA_HOME nor HOME names a folder for plugins")]
    NoFolder,
}

impl Failure for ArchiveError {
    fn exit_class(&self) -> ExitClass {
        match self {
            ArchiveError::File(error) => error.exit_class(),
            ArchiveError::NoLicense { .. }
            | ArchiveError::NotBuilt { .. }
            | ArchiveError::Installed { .. }
            | ArchiveError::NoFolder => ExitClass::Usage,
            _ => ExitClass::Plugin,
        }
    }

    fn next_step(&self) -> String {
        match self {
            ArchiveError::File(error) => error.next_step(),
            ArchiveError::Library(error) => error.next_step(),
            ArchiveError::Unstripped { .. } => "build it again, with cargo".to_owned(),
            ArchiveError::NoLicense { .. } => {
                "put one beside Cargo.toml, or name it with --license FILE".to_owned()
            }
            ArchiveError::NotBuilt { .. } => {
                "run `cargo build --release` there, or name the library".to_owned()
            }
            ArchiveError::Damaged { .. } => "download or copy it again".to_owned(),
            ArchiveError::Escapes { .. } => {
                "do not use it; ask its author for one made by `host plugins pack`".to_owned()
            }
            ArchiveError::Format { .. } => "update this host".to_owned(),
            ArchiveError::Target { .. } => {
                "ask its author for an archive for this machine, or build it here".to_owned()
            }
            ArchiveError::Hash { .. } => {
                "download it again from its author, and do not use this one".to_owned()
            }
            ArchiveError::Installed { .. } => "replace it with --replace".to_owned(),
            ArchiveError::NoFolder => "name one with --to DIR".to_owned(),
        }
    }
}
