//! The name of a plugin below `tests/plugins` -> its library, built like its author's; and other
//! facilities that tests need.

mod against;
mod left_out;
mod mpi;
mod placed;
mod tch;

use std::path::{Path, PathBuf};
use std::process::Command;

pub use against::{Patch, library_against, library_against_kept};
pub use left_out::{Facility, WITHOUT, assert_reports_skip, lacks, leave_out};
pub use mpi::{allow, mpi_folder, mpirun};
pub use placed::put;
pub use tch::tch_without_engine;

/// The bytes in `faulty-load` that are replaced to choose its fault.
const NO_FAULT: &[u8] = b"espalier-fault: nowhere:none............";

/// Cargo's setting by which the interface compiles in a third of the time. Each of its versions and
/// places is compiled again.
pub const UNOPTIMISED_INTERFACE: &str = "profile.release.package.espalier-interface.opt-level=0";

/// The library of the sample plugin `package`. Cargo builds it first, beside the tests' own target
/// directory.
///
/// # Panics
/// If it cannot be built.
pub fn library(package: &str) -> PathBuf {
    let samples = root().join("tests/plugins");
    build_in(&samples, &["--locked", "--package", package, "--lib"]);
    let stem = package.replace('-', "_");
    target().join(format!("release/lib{stem}.so"))
}

/// Runs the unit tests of the sample plugin `package`.
///
/// # Panics
/// With their output if one fails, or if they cannot be built.
pub fn run_unit_tests(package: &str) {
    let samples = root().join("tests/plugins");
    cargo_in(&samples, "test", &["--locked", "--package", package]);
}

/// A library's bytes with every `from` replaced by `to` of the same length: another library with
/// another hash.
///
/// # Panics
/// If `from` is not in it.
pub fn patched(bytes: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let mut bytes = bytes.to_vec();
    let places: Vec<usize> = (0..bytes.len() - from.len())
        .filter(|&at| bytes[at] == from[0] && bytes[at..].starts_with(from))
        .collect();
    assert!(!places.is_empty(), "{} is not there", from.escape_ascii());
    for at in places {
        bytes[at..at + to.len()].copy_from_slice(to);
    }
    bytes
}

/// The bytes of the sample `faulty-load` with `fault`, `PLACE:FAULT`.
///
/// # Panics
/// As [`library`].
pub fn faulty(fault: &str) -> Vec<u8> {
    let bytes = std::fs::read(library("faulty-load")).expect("just built");
    let chosen = format!("espalier-fault: {fault:.<24}");
    patched(&bytes, NO_FAULT, chosen.as_bytes())
}

/// Builds `arguments` in release mode in the workspace at `folder`.
fn build_in(folder: &Path, arguments: &[&str]) {
    cargo_in(folder, "build", arguments);
}

/// Runs `cargo COMMAND` with `arguments` in release mode in the workspace at `folder`.
fn cargo_in(folder: &Path, command: &str, arguments: &[&str]) {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args([command, "--release", "--quiet"])
        .args(["--config", UNOPTIMISED_INTERFACE])
        // One profile for all workspaces: their dependencies are compiled once.
        .args(["--config", "profile.release.debug='line-tables-only'"])
        .args(["--config", "profile.release.strip='none'"])
        .args(arguments)
        .arg("--target-dir")
        .arg(target())
        .current_dir(folder)
        .output()
        .expect("cargo starts");
    let printed = [output.stdout, output.stderr].concat();
    assert!(
        output.status.success(),
        "cargo {command} {arguments:?} failed: {}",
        String::from_utf8_lossy(&printed)
    );
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The samples' target directory: inside that of the running test or program.
fn target() -> PathBuf {
    let built = std::env::current_exe().expect("a program is a file");
    let mut folders = built.ancestors().skip(1);
    let profile = folders.find(|folder| !folder.ends_with("deps"));
    let target = profile.and_then(Path::parent).expect("target/release");
    target.join("samples")
}
