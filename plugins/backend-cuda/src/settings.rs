//! The options of the backend.

use std::env;
use std::path::PathBuf;

use espalier_host_device::HostOptions;
use espalier_interface::{Options, PluginError, Result};

/// The options of the backend, read.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Folder of CUDA's libraries, if the user names one.
    pub libraries: Option<PathBuf>,
    /// Folder of compiled kernels, if there is one.
    pub cache: Option<PathBuf>,
    /// Bytes of a device's memory, if there is a bound.
    pub device_memory: Option<u64>,
    /// What computes products of bf16.
    pub products: ProductChoice,
}

/// What computes products of bf16.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProductChoice {
    /// cuBLASLt where it can be used, else the backend's own kernels.
    Auto,
    /// cuBLASLt, without which no device is opened.
    CublasLt,
    /// The backend's own kernels.
    Own,
}

impl ProductChoice {
    /// All, by their names.
    const NAMED: [(&'static str, ProductChoice); 3] = [
        ("auto", ProductChoice::Auto),
        ("cublaslt", ProductChoice::CublasLt),
        ("own", ProductChoice::Own),
    ];

    fn named(name: &str) -> Result<Self> {
        let found = Self::NAMED.iter().find(|(of, _)| *of == name);
        found.map(|(_, products)| *products).ok_or_else(|| {
            PluginError::invalid(format!(
                "products: expected auto, cublaslt or own, found `{name}`"
            ))
        })
    }
}

impl Settings {
    /// What `options` set.
    ///
    /// # Errors
    /// `INVALID` for a text that is not a size or that names no kind of products.
    pub fn new(options: &Options) -> Result<Self> {
        let named = |name: &str| {
            let text = options.0.get(name).and_then(|value| value.as_str());
            text.filter(|text| !text.is_empty()).map(PathBuf::from)
        };
        let products = options.0.get("products").and_then(|value| value.as_str());
        Ok(Settings {
            libraries: named("libraries"),
            cache: named("cache_dir").or_else(default_cache),
            device_memory: HostOptions::default().with(options)?.device_memory,
            products: products.map_or(Ok(ProductChoice::Auto), ProductChoice::named)?,
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
