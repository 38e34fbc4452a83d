//! A plugin as one file that others install: `plugin.json`, the stripped library and its licences.

mod archive_error;
mod installed;
mod packed;
mod plugin_crate;
mod plugin_manifest;
mod stripped;
mod unpacked;

pub use archive_error::ArchiveError;
pub use installed::{InstalledPlugin, Replace, install, install_dir};
pub use packed::{PackedPlugin, pack};
pub use plugin_crate::{BuiltPlugin, find_built};
pub use plugin_manifest::{ArchivedFile, PluginManifest, this_target};
pub use unpacked::{UnpackedPlugin, unpack};
