//! The crate `tests/fuzz` -> its program, with the address sanitizer and libFuzzer's counters.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::workspace::{Workspace, run};

/// The counters of libFuzzer: how often each edge was taken, its address, and the compared values.
const COUNTERS: [&str; 5] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
];

/// The sanitizer's flag.
const SANITIZER: &str = "-Zsanitizer=address";

/// The folder of the build.
pub fn target(workspace: &Workspace) -> PathBuf {
    workspace.root.join("tests/fuzz/target")
}

/// Builds the program and returns its path.
///
/// # Errors
/// Where the toolchain has no sanitizer, there is no C++ compiler, or the build fails.
pub fn build(workspace: &Workspace) -> Result<PathBuf> {
    let rustc = Rustc::ask()?;
    rustc.require_sanitizer()?;
    require_compiler()?;
    let flags: Vec<&str> = COUNTERS.into_iter().chain([SANITIZER]).collect();
    let mut cargo = workspace.cargo();
    cargo
        .args([
            "build",
            "--release",
            "--locked",
            "--manifest-path",
            "tests/fuzz/Cargo.toml",
        ])
        // Named, so that build scripts and macros are built without the flags.
        .args(["--target", &rustc.host, "--target-dir"])
        .arg(target(workspace))
        .env("RUSTC_BOOTSTRAP", "1")
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"));
    run(&mut cargo)?;
    Ok(target(workspace)
        .join(&rustc.host)
        .join("release/espalier-fuzz"))
}

/// The compiler's version and host.
struct Rustc {
    host: String,
    sysroot: PathBuf,
}

impl Rustc {
    fn ask() -> Result<Self> {
        let version = answer(&["-vV"])?;
        let host = version.lines().find_map(|line| line.strip_prefix("host: "));
        let host = host.context("`rustc -vV` names no host")?.to_owned();
        let sysroot = PathBuf::from(answer(&["--print", "sysroot"])?.trim());
        Ok(Rustc { host, sysroot })
    }

    /// Refuses a toolchain without the sanitizer's runtime.
    fn require_sanitizer(&self) -> Result<()> {
        let folder = self
            .sysroot
            .join("lib/rustlib")
            .join(&self.host)
            .join("lib");
        if has_sanitizer(&folder) {
            return Ok(());
        }
        bail!(
            "the address sanitizer is missing: expected librustc-*_rt.asan.a in {}. Toolchains of rustup have it for \
             x86_64-unknown-linux-gnu, aarch64-unknown-linux-gnu and macOS: install one (`rustup toolchain install stable`, \
             https://rustup.rs) and run this with it",
            folder.display()
        )
    }
}

fn has_sanitizer(folder: &Path) -> bool {
    let Ok(entries) = fs::read_dir(folder) else {
        return false;
    };
    entries.flatten().any(|entry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        name.starts_with("librustc") && name.contains("_rt.asan")
    })
}

/// Refuses a machine without a C++ compiler: libFuzzer is C++, and is built with the targets.
fn require_compiler() -> Result<()> {
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".to_owned());
    let found = Command::new(&compiler)
        .arg("--version")
        .stdout(Stdio::null())
        .status();
    match found {
        Ok(status) if status.success() => Ok(()),
        _ => bail!(
            "a C++ compiler is missing: `{compiler}` does not run. Install one (Debian: `apt-get install g++`), or name \
             another in CXX"
        ),
    }
}

fn answer(arguments: &[&str]) -> Result<String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc)
        .args(arguments)
        .output()
        .context("cannot run rustc")?;
    if !output.status.success() {
        bail!("rustc failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    String::from_utf8(output.stdout).context("rustc's answer is not UTF-8")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_toolchain_without_the_sanitizer_is_refused_with_what_to_install() {
        let sysroot = tempfile::tempdir().expect("a folder");
        let rustc = Rustc {
            host: "x-y-z".to_owned(),
            sysroot: sysroot.path().to_owned(),
        };
        let refused = || {
            rustc
                .require_sanitizer()
                .expect_err("it is missing")
                .to_string()
        };
        assert!(refused().contains("rustup toolchain install stable"));
        let folder = sysroot.path().join("lib/rustlib/x-y-z/lib");
        fs::create_dir_all(&folder).expect("a folder");
        fs::write(folder.join("libstd.rlib"), "").expect("a file");
        assert!(refused().contains(&folder.display().to_string()));
        fs::write(folder.join("librustc-stable_rt.asan.a"), "").expect("a file");
        rustc.require_sanitizer().expect("it is there");
    }
}
