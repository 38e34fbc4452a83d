//! The shipped plugins' libraries -> folders of them, and registries that find them there.

use std::fs;
use std::path::{Path, PathBuf};

use espalier_interface::abi::{ABI_MAJOR, ABI_MINOR};
use espalier_registry::{Registry, SearchPath};
use espalier_samples::patched;
use tempfile::TempDir;

/// A library with another interface version in its descriptor.
pub fn of_another_abi(library: &[u8]) -> Vec<u8> {
    let ours = format!("\"abi\":[{ABI_MAJOR},{ABI_MINOR}]");
    let another = format!("\"abi\":[9,{ABI_MINOR}]");
    patched(library, ours.as_bytes(), another.as_bytes())
}

/// The library of a shipped plugin: collected in `HOST_PLUGIN_PATH`, or built by Cargo beside this
/// test.
pub fn shipped(plugin: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test is a file");
    let deps = test.parent().expect("it is in a folder");
    let built = format!("libespalier_{plugin}.so");
    let gathered = gathered()
        .into_iter()
        .map(|dir| dir.join(format!("lib{plugin}.so")));
    let beside = [deps, deps.parent().expect("target/release")].map(|dir| dir.join(&built));
    let found = gathered.chain(beside).find(|path| path.is_file());
    found.unwrap_or_else(|| panic!("{built} is not in {}", deps.display()))
}

fn gathered() -> Vec<PathBuf> {
    let path = std::env::var_os("HOST_PLUGIN_PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .filter(|dir| dir.is_dir())
        .collect()
}

/// A folder with the named plugins' libraries, with the permissions of a build.
pub fn folder(plugins: &[&str]) -> TempDir {
    let dir = tempfile::tempdir().expect("a temporary folder");
    for plugin in plugins {
        put(
            dir.path(),
            plugin,
            &fs::read(shipped(plugin)).expect("built"),
        );
    }
    dir
}

pub fn put(dir: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = dir.join(format!("lib{name}.so"));
    espalier_samples::put(&path, bytes);
    path
}

pub fn search(dirs: &[&Path]) -> SearchPath {
    SearchPath::new(dirs.iter().map(|dir| ("--plugin-dir", dir.to_path_buf())))
}

/// The shipped plugins of this build: linked, or collected.
pub fn ours() -> Registry {
    let gathered = if cfg!(feature = "embedded") {
        Vec::new()
    } else {
        gathered()
    };
    let dirs: Vec<&Path> = gathered.iter().map(PathBuf::as_path).collect();
    Registry::discover(&search(&dirs))
}

pub fn loaded(dir: &TempDir) -> Registry {
    Registry::discover(&search(&[dir.path()]).without_linked())
}
