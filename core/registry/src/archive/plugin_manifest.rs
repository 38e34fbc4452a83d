//! `plugin.json` of an archive: the plugin, its library and its licences.

use espalier_interface::abi::descriptor::{ComponentDescriptor, Descriptor};
use serde::{Deserialize, Serialize};

/// The name of the file.
pub const MANIFEST: &str = "plugin.json";

/// The version of this format.
pub const FORMAT: u32 = 1;

/// What an archive holds. Unknown keys are ignored, so that the format can grow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PluginManifest {
    /// Version of this format.
    pub format: u32,
    /// The plugin's name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Major and minor version of the interface that it was built with.
    pub interface: [u32; 2],
    /// The machine that it was built for, as Rust names it: `x86_64-unknown-linux-gnu`.
    pub target: String,
    /// The licence's name in the crate's manifest, as in `Apache-2.0 OR MIT`.
    pub license: Option<String>,
    /// The library.
    pub library: ArchivedFile,
    /// The texts of its licences, one at least.
    pub license_files: Vec<ArchivedFile>,
    /// Its components with their options.
    pub components: Vec<ComponentDescriptor>,
}

/// A file in an archive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchivedFile {
    /// Its name; it is in no folder.
    pub file: String,
    /// Its length in bytes.
    pub bytes: u64,
    /// Its hash, hexadecimal.
    pub sha256: String,
}

impl PluginManifest {
    /// The descriptor that the library has to have.
    pub fn descriptor(&self) -> Descriptor {
        Descriptor {
            abi: self.interface,
            name: self.name.clone(),
            version: self.version.clone(),
            components: self.components.clone(),
        }
    }

    /// All files of the archive but this one.
    pub fn files(&self) -> impl Iterator<Item = &ArchivedFile> {
        std::iter::once(&self.library).chain(&self.license_files)
    }
}

/// The machine that this program was built for, as Rust names it.
pub fn this_target() -> String {
    let libc = if cfg!(target_env = "musl") {
        "musl"
    } else {
        "gnu"
    };
    format!("{}-unknown-linux-{libc}", std::env::consts::ARCH)
}
