//! The options of the backend.

use std::env;
use std::path::PathBuf;
use std::sync::Arc;

use espalier_host_device::HostOptions;
use espalier_interface::{Options, PluginError, Result, Services};

use crate::card::Card;
use crate::compiler::Compiler;
use crate::libraries::Libraries;
use crate::loader::Loader;
use crate::modules::Modules;

/// The kind of card that kernels are made for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ArchPath {
    /// The card's own.
    #[default]
    Auto,
    /// The oldest that is served, on every card.
    Sm80,
}

impl ArchPath {
    /// The choices, as the option declares them.
    pub const RANGE: &str = "auto | sm_80";

    fn of(options: &Options) -> Result<Self> {
        match options.0.get("arch_path").and_then(|value| value.as_str()) {
            None | Some("auto") => Ok(ArchPath::Auto),
            Some("sm_80") => Ok(ArchPath::Sm80),
            Some(other) => Err(PluginError::invalid(format!(
                "arch_path: expected {}, found `{other}`",
                ArchPath::RANGE
            ))),
        }
    }
}

/// The options of the backend, read.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Folder of CUDA's libraries, if the user names one.
    pub libraries: Option<PathBuf>,
    /// Folder of compiled kernels, if there is one.
    pub cache: Option<PathBuf>,
    /// Folder of kernels that came compiled, if the user names one.
    pub kernels: Option<PathBuf>,
    /// The kind of card that kernels are made for.
    pub arch_path: ArchPath,
    /// Whether the processor decodes weights that a card cannot decode.
    pub host_decode: bool,
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
    /// `INVALID` for a text that is not a size, a kind of products or a kind of card that is not a
    /// choice.
    pub fn new(options: &Options) -> Result<Self> {
        let named = |name: &str| {
            let text = options.0.get(name).and_then(|value| value.as_str());
            text.filter(|text| !text.is_empty()).map(PathBuf::from)
        };
        let products = options.0.get("products").and_then(|value| value.as_str());
        let host_decode = options.0.get("host_decode");
        Ok(Settings {
            libraries: named("libraries"),
            cache: named("cache_dir").or_else(default_cache),
            kernels: named("kernels"),
            arch_path: ArchPath::of(options)?,
            host_decode: host_decode.and_then(|value| value.as_bool()) == Some(true),
            device_memory: HostOptions::default().with(options)?.device_memory,
            products: products.map_or(Ok(ProductChoice::Auto), ProductChoice::named)?,
        })
    }

    /// The kernels of a card, made and kept as these settings say.
    pub fn modules(
        &self,
        libraries: &Libraries,
        card: &Arc<Card>,
        services: &Arc<dyn Services>,
    ) -> Modules {
        let compiler = Compiler::new(libraries.nvrtc, card.capability, self.cache.clone());
        let compiler = compiler.with_shipped(self.kernels.clone());
        let compiler = match self.arch_path {
            ArchPath::Auto => compiler,
            ArchPath::Sm80 => compiler.of_oldest(card.capability),
        };
        Modules::new(Loader::new(card.clone(), compiler, services.clone()))
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
