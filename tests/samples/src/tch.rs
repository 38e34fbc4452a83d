//! The plugin of the backend `tch`, built without its engine, as on a machine without libtorch.

use std::path::PathBuf;

use crate::{build_in, root, target};

/// The plugin's library. Cargo builds it first, in a separate workspace. Only its engine, which is
/// not built, needs libtorch.
///
/// # Panics
/// If it cannot be built.
pub fn tch_without_engine() -> PathBuf {
    let package = ["--locked", "--package", "espalier-backend-tch", "--lib"];
    build_in(&root().join("plugins/backend-tch"), &package);
    target().join("release/libespalier_backend_tch.so")
}
