//! Checks that the backends on tensor libraries compute by their library: no loop of their own
//! writes numbers, and none of our kernels is called.

use std::path::Path;

/// The folders of these backends and of the ops that they share.
const FOLDERS: [&str; 3] = [
    "core/tensor-ops/src",
    "plugins/backend-candle/src",
    "plugins/backend-tch",
];

/// Text of code that computes numbers itself.
const OWN: [&str; 7] = [
    "&mut [f32]",
    "&mut [f64]",
    "&mut [bf16]",
    "&mut [f16]",
    ".iter_mut()",
    ".mul_add(",
    "espalier_kernels",
];

/// What in `line` of `file`, which is no test, computes numbers that the library should compute.
pub fn found(file: &Path, line: &str) -> Option<&'static str> {
    let is_theirs = FOLDERS.iter().any(|folder| file.starts_with(folder));
    let mut own = OWN.into_iter().filter(|own| line.contains(own));
    is_theirs.then(|| own.next()).flatten()
}
