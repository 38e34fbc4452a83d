//! What `cargo test --workspace` builds beside the host.

use std::path::{Path, PathBuf};

/// The library of a shipped plugin's crate, `backend_cpu`.
pub fn library(plugin: &str) -> PathBuf {
    let release = Path::new(env!("CARGO_BIN_EXE_host")).parent();
    let release = release.expect("the target directory");
    let name = format!("libespalier_{plugin}.so");
    let mut built = [release.join("deps").join(&name), release.join(&name)].into_iter();
    let built = built.find(|path| path.is_file());
    built.unwrap_or_else(|| panic!("{name} is missing: `cargo test --workspace` builds it"))
}
