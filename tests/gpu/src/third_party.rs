//! Quantizers of third parties, as libraries, across the boundary.

use espalier_interface::{Quantizer, Serial, Services};
use espalier_registry::{Registry, SearchPath};
use espalier_samples::put;
use serde_json::Map;
use tempfile::TempDir;

static SERVICES: &dyn Services = &Serial;

/// A folder with the library of the sample plugin `name`.
///
/// # Panics
/// If it cannot be built.
pub fn folder(name: &str) -> TempDir {
    let library = espalier_samples::library(name);
    let folder = tempfile::tempdir().expect("a folder");
    let bytes = std::fs::read(&library).expect("just built");
    put(
        &folder.path().join(library.file_name().expect("a file")),
        &bytes,
    );
    folder
}

/// The registry of a folder's plugins.
pub fn registry(folder: &TempDir) -> Registry {
    let dirs = [("--plugin-dir", folder.path().to_owned())];
    Registry::discover(&SearchPath::new(dirs).without_linked())
}

/// The quantizer of the sample plugin `name` with its defaults.
///
/// # Panics
/// If it cannot be built or loaded.
pub fn sample(name: &str) -> Box<dyn Quantizer> {
    component(name, name)
}

/// A quantizer of the sample plugin `plugin` with its defaults.
///
/// # Panics
/// If it cannot be built or loaded.
pub fn component(plugin: &str, name: &str) -> Box<dyn Quantizer> {
    let made = registry(&folder(plugin)).create_quantizer(name, &Map::new(), SERVICES);
    made.expect("a quantizer").0
}
