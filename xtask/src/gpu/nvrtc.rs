//! The NVRTC of PyPI, which compiles kernels without a card: its download.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::workspace::{Workspace, run};

/// The package, and the hash of its wheel for x86-64 Linux.
const VERSION: &str = "13.5.37";
const SHA_256: &str = "86b4d68058807988b7d9af5b44917a0601e9c337f35ccd657bfb3c759ff8d8bc";

/// What the wheel holds, relative to the folder that `pip` fills.
const FILES: [&str; 2] = [
    "nvidia/cu13/lib/libnvrtc.so.13",
    "nvidia/cu13/lib/libnvrtc-builtins.so.13.5",
];

/// The folder of NVRTC's libraries in the target directory. It is downloaded unless it is there, or
/// `is_offline`.
///
/// # Errors
/// Where it is missing and cannot be downloaded, or its wheel is not the expected one.
pub fn fetched(workspace: &Workspace, python: &Path, is_offline: bool) -> Result<PathBuf> {
    let out = workspace.target.join("nvrtc");
    let libraries = out.join("nvidia/cu13/lib");
    if is_complete(&out) {
        return Ok(libraries);
    }
    ensure!(
        !is_offline,
        "{} has no NVRTC {VERSION}: run `cargo xtask gpu compile` without --offline, which downloads it from PyPI",
        out.display()
    );
    let partial = out.with_extension("partial");
    for folder in [&partial, &out] {
        if folder.exists() {
            fs::remove_dir_all(folder)
                .with_context(|| format!("cannot clear {}", folder.display()))?;
        }
    }
    fs::create_dir_all(&partial).with_context(|| format!("cannot make {}", partial.display()))?;
    println!(
        "downloading nvidia-cuda-nvrtc {VERSION} from PyPI into {}",
        out.display()
    );
    let list = partial.join("requirements.txt");
    let requirement = format!("nvidia-cuda-nvrtc=={VERSION} --hash=sha256:{SHA_256}\n");
    fs::write(&list, requirement).with_context(|| format!("cannot write {}", list.display()))?;
    let mut pip = Command::new(python);
    pip.args(["-m", "pip", "install", "--quiet", "--no-deps"])
        .args(["--only-binary=:all:", "--disable-pip-version-check"])
        .args(["--retries", "1", "--require-hashes", "--target"])
        .arg(&partial)
        .arg("--requirement")
        .arg(&list);
    run(&mut pip).context(
        "NVRTC was not downloaded: PyPI has to be reached, with a Python that has pip (--python)",
    )?;
    ensure!(
        is_complete(&partial),
        "the wheel lacks one of {}",
        FILES.join(", ")
    );
    fs::rename(&partial, &out).with_context(|| format!("cannot make {}", out.display()))?;
    Ok(libraries)
}

/// Whether `folder` holds the package whole, of the right version.
fn is_complete(folder: &Path) -> bool {
    let metadata = format!("nvidia_cuda_nvrtc-{VERSION}.dist-info/METADATA");
    folder.join(metadata).is_file() && FILES.iter().all(|file| folder.join(file).is_file())
}
