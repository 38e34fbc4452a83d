//! Build results of `cargo test --workspace` and `cargo build --workspace` -> their paths, beside
//! the running program.

use std::path::{Path, PathBuf};

/// The program `host`.
///
/// # Panics
/// If it was not built.
pub fn program() -> PathBuf {
    let path = release().join("host");
    assert!(
        path.is_file(),
        "{} is missing: cargo builds it",
        path.display()
    );
    path
}

/// The fault library, to be preloaded.
///
/// # Panics
/// If it was not built.
pub fn faults() -> PathBuf {
    library("faults")
}

/// The library of a crate of this workspace: `faults`, `backend_cpu`.
///
/// # Panics
/// If it was not built.
pub fn library(of: &str) -> PathBuf {
    let name = format!("libespalier_{of}.so");
    let built = [release().join("deps").join(&name), release().join(&name)];
    let built = built.into_iter().find(|path| path.is_file());
    built.unwrap_or_else(|| panic!("{name} is missing: cargo builds it with --workspace"))
}

/// A path under `tests/golden`.
pub fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../golden")
        .join(name)
}

/// The directory of this program, or of the tests' programs.
fn release() -> PathBuf {
    let program = std::env::current_exe().expect("a program is a file");
    let folder = program.parent().expect("a folder");
    let is_deps = folder.file_name().is_some_and(|name| name == "deps");
    let folder = if is_deps {
        folder.parent().expect("target/release")
    } else {
        folder
    };
    folder.to_owned()
}
