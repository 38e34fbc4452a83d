//! The environment and the target directory -> a libtorch to build and run with; and its download.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;

use crate::workspace::{Workspace, run};

/// The version that tch 0.26 is written for.
const VERSION: &str = "2.13.0";

/// What the wheel of PyPI holds and needs on Linux to be opened on a machine without a graphics
/// card. The last two have the versions of its own CUDA toolkit.
const PACKAGES: [&str; 3] = [
    "torch==2.13.0",
    "nvidia-cuda-cupti==13.0.85",
    "nvidia-cuda-runtime==13.0.96",
];

/// Sizes of these packages for x86-64 Linux, for people.
const DOWNLOAD: &str =
    "540 MB (torch 527 MB, nvidia-cuda-cupti 10.7 MB, nvidia-cuda-runtime 2.2 MB)";
const UNPACKED: &str = "1.2 GB";

/// The Python whose wheel is taken. libtorch is the same in all of them.
const PYTHON: &str = "3.12";

/// Files without which libtorch cannot be opened, relative to the folder that `pip` fills.
const FILES: [&str; 4] = [
    "torch/lib/libtorch_cpu.so",
    "torch/lib/libc10.so",
    "nvidia/cu13/lib/libcudart.so.13",
    "nvidia/cu13/lib/libcupti.so.13",
];

/// Options of `cargo xtask setup-libtorch`.
#[derive(Args)]
pub struct SetupLibtorchOptions {
    /// A Python with pip, which downloads
    #[arg(long, value_name = "PYTHON", default_value = "python3")]
    python: PathBuf,
    /// Where libtorch goes [default: the target directory's `libtorch`]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Downloads libtorch from PyPI, unless it is there.
///
/// # Errors
/// Where pip is missing or fails, or the folder cannot be written.
pub fn set_up(workspace: &Workspace, options: &SetupLibtorchOptions) -> Result<()> {
    let out = options.out.clone().unwrap_or_else(|| folder(workspace));
    if is_complete(&out) {
        println!("libtorch {VERSION} is in {}", out.join("torch").display());
        return Ok(());
    }
    let partial = out.with_extension("partial");
    for folder in [&partial, &out] {
        if folder.exists() {
            fs::remove_dir_all(folder)
                .with_context(|| format!("cannot clear {}", folder.display()))?;
        }
    }
    println!(
        "downloading {DOWNLOAD} from PyPI into {}, {UNPACKED} unpacked",
        out.display()
    );
    let mut pip = Command::new(&options.python);
    pip.args(["-m", "pip", "install", "--no-deps", "--only-binary=:all:"])
        .args(["--python-version", PYTHON, "--disable-pip-version-check"])
        .arg("--target")
        .arg(&partial)
        .args(PACKAGES);
    run(&mut pip).context("pip is needed: name a Python that has it with --python")?;
    ensure!(
        is_complete(&partial),
        "the wheels lack one of {}",
        FILES.join(", ")
    );
    fs::rename(&partial, &out).with_context(|| format!("cannot make {}", out.display()))?;
    println!("libtorch {VERSION} is in {}", out.join("torch").display());
    Ok(())
}

/// Where the download goes.
fn folder(workspace: &Workspace) -> PathBuf {
    workspace.target.join("libtorch")
}

/// Whether `folder` holds the packages whole, of the right version.
fn is_complete(folder: &Path) -> bool {
    let version = fs::read_to_string(folder.join("torch/version.py")).unwrap_or_default();
    version.contains(&format!("__version__ = '{VERSION}"))
        && FILES.iter().all(|file| folder.join(file).is_file())
}

/// The libtorch that `LIBTORCH` names, that Python has where `LIBTORCH_USE_PYTORCH` is set, or
/// that was downloaded: the folder that holds `lib` and `include`.
///
/// # Errors
/// Where there is none; the message says how to get it.
pub fn find(workspace: &Workspace) -> Result<PathBuf> {
    let libtorch = if let Some(folder) = env::var_os("LIBTORCH").filter(|folder| !folder.is_empty())
    {
        PathBuf::from(folder)
    } else if env::var_os("LIBTORCH_USE_PYTORCH").is_some_and(|value| value != "0") {
        of_python()?
    } else {
        folder(workspace).join("torch")
    };
    let library = libtorch.join("lib/libtorch_cpu.so");
    if !library.is_file() {
        bail!(
            "no libtorch {VERSION}: {} does not exist; run `cargo xtask setup-libtorch`, which downloads \
             {DOWNLOAD}, or name the folder of one with LIBTORCH=DIR",
            library.display()
        );
    }
    Ok(libtorch)
}

/// The package `torch` of the active Python.
fn of_python() -> Result<PathBuf> {
    let python = if env::var_os("VIRTUAL_ENV").is_some() {
        "python"
    } else {
        "python3"
    };
    let script =
        "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])";
    let output = Command::new(python).args(["-c", script]).output();
    let output = output.with_context(|| format!("LIBTORCH_USE_PYTORCH: cannot run `{python}`"))?;
    ensure!(
        output.status.success(),
        "LIBTORCH_USE_PYTORCH is set, but `{python}` has no package `torch`"
    );
    Ok(PathBuf::from(String::from_utf8(output.stdout)?.trim()))
}
