//! NVRTC, which compiles kernels without a card, and the disassembler nvdisasm: their download from
//! PyPI.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::workspace::{Workspace, run};

/// The version of both packages.
const VERSION: &str = "13.5.37";

/// The packages, and the hashes of their wheels for x86-64 Linux.
const PACKAGES: [(&str, &str); 2] = [
    (
        "nvidia-cuda-nvrtc",
        "86b4d68058807988b7d9af5b44917a0601e9c337f35ccd657bfb3c759ff8d8bc",
    ),
    (
        "nvidia-cuda-nvdisasm",
        "d3fdbdd49fa53e2e4aacd3db8259d052bd2b049ececdcb69e92e083c6728e7ca",
    ),
];

/// What the wheels hold, relative to the folder that `pip` fills.
const FILES: [&str; 3] = [
    "nvidia/cu13/lib/libnvrtc.so.13",
    "nvidia/cu13/lib/libnvrtc-builtins.so.13.5",
    DISASSEMBLER,
];
const DISASSEMBLER: &str = "nvidia/cu13/bin/nvdisasm";

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
    let names = PACKAGES.map(|(name, _)| name).join(" and ");
    println!(
        "downloading {names} {VERSION} from PyPI into {}",
        out.display()
    );
    let list = partial.join("requirements.txt");
    let line = |(name, hash)| format!("{name}=={VERSION} --hash=sha256:{hash}\n");
    fs::write(&list, PACKAGES.map(line).concat())
        .with_context(|| format!("cannot write {}", list.display()))?;
    let mut pip = Command::new(python);
    pip.args(["-m", "pip", "install", "--quiet", "--no-deps"])
        .args(["--only-binary=:all:", "--disable-pip-version-check"])
        .args(["--retries", "1", "--require-hashes", "--target"])
        .arg(&partial)
        .arg("--requirement")
        .arg(&list);
    run(&mut pip).context(
        "nothing was downloaded: PyPI has to be reached, with a Python that has pip (--python)",
    )?;
    ensure!(
        is_complete(&partial),
        "the wheels lack one of {}",
        FILES.join(", ")
    );
    fs::rename(&partial, &out).with_context(|| format!("cannot make {}", out.display()))?;
    Ok(libraries)
}

/// The disassembler beside the libraries of [`fetched`].
pub fn disassembler(workspace: &Workspace) -> PathBuf {
    workspace.target.join("nvrtc").join(DISASSEMBLER)
}

/// Whether `folder` holds the packages whole, of the right version.
fn is_complete(folder: &Path) -> bool {
    let metadata = PACKAGES.iter().map(|(name, _)| {
        let name = name.replace('-', "_");
        format!("{name}-{VERSION}.dist-info/METADATA")
    });
    let files = metadata.chain(FILES.map(str::to_owned));
    files
        .map(|file| folder.join(file))
        .all(|file| file.is_file())
}
