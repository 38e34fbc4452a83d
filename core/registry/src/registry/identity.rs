//! Which plugin made a component: what checkpoints and `run.json` record, and what errors name.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A component and the plugin it came from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PluginIdentity {
    /// The component's name, such as `nf4`.
    pub component: String,
    /// Its role, by name.
    pub role: String,
    /// The plugin's name.
    pub plugin: String,
    /// The plugin's version.
    pub version: String,
    /// Major and minor version of the interface it was built with.
    pub abi: [u32; 2],
    /// Hash of the library's bytes, hexadecimal; unset for a linked plugin.
    pub sha256: Option<String>,
    /// The library; unset for a linked plugin.
    pub file: Option<PathBuf>,
}
