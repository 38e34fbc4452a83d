//! The options of the backend.

use std::env;
use std::path::PathBuf;

use espalier_host_device::HostOptions;
use espalier_interface::{Options, Result};

/// The options of the backend, read.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Folder of CUDA's libraries, if the user names one.
    pub libraries: Option<PathBuf>,
    /// Folder of compiled kernels, if there is one.
    pub cache: Option<PathBuf>,
    /// Bytes of a device's memory, if there is a bound.
    pub device_memory: Option<u64>,
}

impl Settings {
    /// What `options` set.
    ///
    /// # Errors
    /// `INVALID` for a text that is not a size.
    pub fn new(options: &Options) -> Result<Self> {
        let named = |name: &str| {
            let text = options.0.get(name).and_then(|value| value.as_str());
            text.filter(|text| !text.is_empty()).map(PathBuf::from)
        };
        Ok(Settings {
            libraries: named("libraries"),
            cache: named("cache_dir").or_else(default_cache),
            device_memory: HostOptions::default().with(options)?.device_memory,
        })
    }
}

/// The folder of compiled kernels where none is named.
fn default_cache() -> Option<PathBuf> {
    let folder = |name: &str| {
        let value = env::var_os(name).filter(|value| !value.is_empty());
        value.map(PathBuf::from)
    };
    let caches = folder("XDG_CACHE_HOME").or_else(|| Some(folder("HOME")?.join(".cache")))?;
    Some(caches.join("espalier").join("cuda"))
}
