//! The name of a fault -> a library that has it.

use std::fs;

use espalier_samples::{library, patched};

/// What the sample's bytes hold where its fault is chosen.
const NO_FAULT: &[u8] = b"espalier-fault: nowhere:none............";

/// The sample's library with `fault`, `PLACE:FAULT`.
pub fn faulty(fault: &str) -> Vec<u8> {
    let bytes = fs::read(library("faulty-load")).expect("just built");
    let chosen = format!("espalier-fault: {fault:.<24}");
    patched(&bytes, NO_FAULT, chosen.as_bytes())
}
