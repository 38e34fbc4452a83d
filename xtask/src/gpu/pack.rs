//! What a machine with a card needs that has no Rust and no network -> one archive, small enough to
//! be carried there with the working tree.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde_json::{Value, json};

use super::nvrtc;
use crate::workspace::{Workspace, run};

/// Most bytes of the archive.
const MOST_BYTES: u64 = 28_000_000;

/// The folder in the archive.
const ROOT: &str = "gpu";

/// The program of the tests with golden data.
const GOLDEN: &str = "golden_on_backend";

/// The folder of compiled kernels, which `run` looks for beside itself.
const KERNELS: &str = "kernels";

/// The peers' script.
const SCRIPT: &str = "card_peer.py";

/// The library of bitsandbytes that is kept, for CUDA 13.0; each of the others has 1 to 26 MB.
const BITSANDBYTES_LIBRARY: &str = "libbitsandbytes_cuda130.so";

/// Options of `cargo xtask gpu pack`.
#[derive(Args, Default)]
pub struct PackOptions {
    /// Where the archive goes [default: the target directory]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// A wheel of bitsandbytes, of which its Python files and its library for CUDA 13.0 are packed
    #[arg(long, value_name = "WHEEL")]
    bitsandbytes: Option<PathBuf>,
    /// A kind of cards, such as sm_90, for which compiled kernels are packed: the machine then
    /// needs no NVRTC
    #[arg(long, value_name = "ARCH")]
    arch: Option<String>,
}

/// Stages the folder and packs it.
///
/// # Errors
/// Where it cannot be staged, `tar` or `xz` is missing, or the archive is larger than its bound.
pub fn pack(workspace: &Workspace, options: &PackOptions) -> Result<()> {
    stage(workspace, options)?;
    let out = options.out.as_ref().unwrap_or(&workspace.target);
    fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
    let archive = out.join(format!("{ROOT}.tar.xz"));
    compress(&workspace.target, &archive)?;
    let bytes = archive.metadata()?.len();
    println!("{}: {:.1} MB", archive.display(), bytes as f64 / 1e6);
    ensure!(
        bytes < MOST_BYTES,
        "the archive has {bytes} bytes, expected fewer than {MOST_BYTES}"
    );
    println!(
        "on the machine with the card, in the working tree: tar -xf {ROOT}.tar.xz -C FOLDER && FOLDER/{ROOT}/run 1"
    );
    Ok(())
}

/// Builds the programs, strips them, and puts them with the peers' script into the target
/// directory's `gpu`, which is returned.
///
/// # Errors
/// Where a build fails, `strip` is missing, a wheel is not the expected one, or NVRTC cannot be
/// had.
pub fn stage(workspace: &Workspace, options: &PackOptions) -> Result<PathBuf> {
    let stage = workspace.target.join(ROOT);
    if stage.exists() {
        fs::remove_dir_all(&stage).with_context(|| format!("cannot clear {}", stage.display()))?;
    }
    fs::create_dir_all(&stage).with_context(|| format!("cannot make {}", stage.display()))?;
    let mut build = workspace.cargo();
    // With the workspace's features, so that crates are not built twice.
    build.args(["build", "--release", "--quiet", "--workspace"]);
    run(build.args(["--bin", "host", "--bin", "measure_card"]))?;
    let built = workspace.target.join("release");
    strip(&built.join("host"), &stage.join("host"))?;
    strip(&built.join("measure_card"), &stage.join("run"))?;
    strip(&golden_tests(workspace)?, &stage.join(GOLDEN))?;
    let script = workspace.root.join("tests/peers").join(SCRIPT);
    fs::copy(&script, stage.join(SCRIPT))
        .with_context(|| format!("cannot copy {}", script.display()))?;
    if let Some(wheel) = &options.bitsandbytes {
        unpack_bitsandbytes(wheel, &stage.join("peers"))?;
    }
    if let Some(architecture) = &options.arch {
        compile_kernels(workspace, architecture, &stage.join(KERNELS))?;
    }
    describe(workspace, options, &stage.join("pack.json"))?;
    Ok(stage)
}

/// Builds the tests with golden data, and returns their program.
fn golden_tests(workspace: &Workspace) -> Result<PathBuf> {
    let mut cargo = workspace.cargo();
    cargo.args(["test", "--release", "--quiet", "--workspace", "--no-run"]);
    cargo.args(["--test", GOLDEN, "--message-format", "json"]);
    let output = cargo.stderr(Stdio::inherit()).output();
    let output = output.context("cannot run cargo")?;
    ensure!(
        output.status.success(),
        "the tests with golden data do not build"
    );
    let text = String::from_utf8_lossy(&output.stdout);
    let messages = text.lines().map(serde_json::from_str::<Value>);
    let messages = messages.collect::<Result<Vec<_>, _>>()?;
    let program = messages.iter().find_map(|message| {
        let is_it = message["target"]["name"] == GOLDEN;
        message["executable"].as_str().filter(|_| is_it)
    });
    let program = program.context("cargo names no program of the tests with golden data")?;
    Ok(PathBuf::from(program))
}

/// Compiles every kernel for cards of one kind into a folder.
fn compile_kernels(workspace: &Workspace, architecture: &str, to: &Path) -> Result<()> {
    let nvrtc = nvrtc::fetched(workspace, Path::new("python3"), false)?;
    let mut build = workspace.cargo();
    // With the workspace's features, so that crates are not built twice.
    build.args(["build", "--release", "--quiet", "--workspace"]);
    run(build.args(["--example", "ship_kernels"]))?;
    let mut ship = Command::new(workspace.target.join("release/examples/ship_kernels"));
    run(ship.arg(nvrtc).arg(architecture).arg(to))
}

/// Copies a program without the names and lines of its functions.
fn strip(from: &Path, to: &Path) -> Result<()> {
    let mut strip = Command::new("strip");
    run(strip.arg("--strip-all").arg("-o").arg(to).arg(from))
        .context("`strip` comes with binutils, which the C compiler needs too")?;
    fs::set_permissions(to, fs::Permissions::from_mode(0o755))?;
    Ok(())
}

/// Unpacks the Python files of a wheel and its library for CUDA 13.0.
fn unpack_bitsandbytes(wheel: &Path, to: &Path) -> Result<()> {
    let mut python = Command::new("python3");
    python.args(["-m", "zipfile", "-e"]).arg(wheel).arg(to);
    run(&mut python).context("`--bitsandbytes` needs python3, which unpacks the wheel")?;
    let mut has_library = false;
    for file in files(to)? {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        has_library |= name == BITSANDBYTES_LIBRARY;
        let is_python = name.ends_with(".py") || name == "METADATA";
        if !is_python && name != BITSANDBYTES_LIBRARY {
            fs::remove_file(&file).with_context(|| format!("cannot remove {}", file.display()))?;
        }
    }
    if !has_library {
        bail!("{} has no {BITSANDBYTES_LIBRARY}", wheel.display());
    }
    Ok(())
}

/// All files below a folder.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            found.extend(files(&entry.path())?);
        } else {
            found.push(entry.path());
        }
    }
    Ok(found)
}

/// Writes which commit was packed, and for which cards kernels are there.
fn describe(workspace: &Workspace, options: &PackOptions, to: &Path) -> Result<()> {
    let git = |arguments: &[&str]| -> Option<String> {
        let mut git = Command::new("git");
        let output = git.current_dir(&workspace.root).args(arguments).output();
        let output = output.ok().filter(|output| output.status.success())?;
        Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let changed = git(&["status", "--porcelain", "--untracked-files=no"]);
    let described = json!({
        "commit": git(&["rev-parse", "HEAD"]),
        "changed": changed.is_none_or(|text| !text.is_empty()),
        "version": env!("CARGO_PKG_VERSION"),
        "kernels_for": options.arch,
    });
    fs::write(to, format!("{described:#}\n"))
        .with_context(|| format!("cannot write {}", to.display()))
}

/// Packs the folder in `target`. The dictionary reaches over all programs, which have much code in
/// common.
fn compress(target: &Path, archive: &Path) -> Result<()> {
    let partial = archive.with_extension("xz.partial");
    let mut tar = Command::new("tar");
    tar.args(["--sort=name", "--owner=0", "--group=0", "--mtime=@0"]);
    tar.arg("--use-compress-program=xz --lzma2=preset=9,dict=128MiB -T1");
    tar.arg("-cf").arg(&partial).arg("-C").arg(target).arg(ROOT);
    run(&mut tar).context("packing needs GNU tar and xz")?;
    fs::rename(&partial, archive).with_context(|| format!("cannot make {}", archive.display()))
}
