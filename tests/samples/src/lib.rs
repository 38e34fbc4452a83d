//! The name of a plugin below `tests/plugins` -> its library, built as its author would build it.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The library of the sample plugin `package`. Cargo builds it first, beside the tests' own target directory.
///
/// # Panics
/// Where it cannot be built.
pub fn library(package: &str) -> PathBuf {
    build(package, &["--lib"]);
    built(package)
}

/// Builds targets of `package` in release.
fn build(package: &str, targets: &[&str]) {
    let samples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../plugins");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args([
            "build",
            "--release",
            "--quiet",
            "--locked",
            "--package",
            package,
        ])
        .args(targets)
        .arg("--target-dir")
        .arg(target())
        .current_dir(samples)
        .output()
        .expect("cargo starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{package} cannot be built: {said}");
}

fn built(package: &str) -> PathBuf {
    let stem = package.replace('-', "_");
    target().join(format!("release/lib{stem}.so"))
}

/// The samples' target directory: in the one that the running test was built in.
fn target() -> PathBuf {
    let test = std::env::current_exe().expect("a test is a file");
    let profile = test.ancestors().nth(2).expect("target/release/deps/test");
    let target = profile.parent().expect("target/release");
    target.join("samples")
}
