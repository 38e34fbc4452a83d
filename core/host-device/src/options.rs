//! The options that all backends in the host's memory have: `mapped_dir` and `device_memory`.

use std::path::PathBuf;

use espalier_interface::bytes::Bytes;
use espalier_interface::{OptionKind, OptionSpec, Options, PluginError, Result};

use crate::MachineMemory;
use crate::machine::memory;
use crate::mapped_file;

/// Where mapped files are, and what a device holds.
#[derive(Clone, Debug)]
pub struct HostOptions {
    /// Folder of mapped files.
    pub mapped_dir: PathBuf,
    /// Bytes of the device's own memory, if there is a bound.
    pub device_memory: Option<u64>,
}

impl Default for HostOptions {
    fn default() -> Self {
        HostOptions {
            mapped_dir: mapped_file::default_folder(),
            device_memory: None,
        }
    }
}

impl HostOptions {
    /// `mapped_dir` as a component declares it.
    pub const MAPPED_DIR: OptionSpec = OptionSpec {
        name: "mapped_dir",
        kind: OptionKind::TEXT,
        default: "null",
        range: "",
        doc: "folder on a disk for weights that memory has no room for; unset: TMPDIR, else /var/tmp",
    };

    /// `device_memory` as a component declares it.
    pub const DEVICE_MEMORY: OptionSpec = OptionSpec {
        name: "device_memory",
        kind: OptionKind::TEXT,
        default: "null",
        range: "",
        doc: "bounds what each device holds, such as 64MiB, as if it were a card; unset: all of the machine's",
    };

    /// The memory of a device: the machine's, or less where there is a bound.
    pub fn memory(&self) -> MachineMemory {
        let (machine, bound) = (memory(), self.device_memory.unwrap_or(u64::MAX));
        MachineMemory {
            total_bytes: machine.total_bytes.min(bound),
            free_bytes: machine.free_bytes.min(bound),
        }
    }

    /// These options with those of `options` that are set.
    ///
    /// # Errors
    /// `INVALID` for a text that is not a size.
    pub fn with(mut self, options: &Options) -> Result<Self> {
        let named = |name: &str| options.0.get(name).and_then(|value| value.as_str());
        if let Some(folder) = named("mapped_dir") {
            self.mapped_dir = PathBuf::from(folder);
        }
        if let Some(size) = named("device_memory").filter(|size| !size.is_empty()) {
            let size: std::result::Result<Bytes, String> = size.parse();
            let size = size.map_err(|why| PluginError::invalid(format!("device_memory: {why}")))?;
            self.device_memory = Some(size.0);
        }
        Ok(self)
    }
}
