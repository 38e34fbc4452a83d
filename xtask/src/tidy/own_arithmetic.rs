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

/// A line that only passes numbers on: to the decoder function of a quantizer.
const PASSES_ON: &str = "fn decode(&self, segments: &[&[u8]], row: u64, out: &mut [f32])";

/// What in `line` of `file`, which is no test, computes numbers that the library should compute.
pub fn found(file: &Path, line: &str) -> Option<&'static str> {
    let is_theirs = FOLDERS.iter().any(|folder| file.starts_with(folder));
    let is_checked = is_theirs && !line.contains(PASSES_ON);
    let mut own = OWN.into_iter().filter(|own| line.contains(own));
    is_checked.then(|| own.next()).flatten()
}
