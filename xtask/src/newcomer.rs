//! The wheel, installed in an environment of its own -> the newcomer's path with its program, and
//! PEFT with what that leaves.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use clap::Args;

use crate::dist;
use crate::golden::require;
use crate::workspace::{Workspace, run};

/// Options of `cargo xtask newcomer`.
#[derive(Args)]
pub struct NewcomerOptions {
    /// A Python with the packages of tests/golden/scripts/requirements.txt, which loads the
    /// adapter; the environment of the wheel has none of them
    #[arg(long, value_name = "PYTHON")]
    python: PathBuf,
    /// Where wheel and environment go; replaced where it exists [default: the target directory's
    /// `newcomer`]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Makes the wheel, installs it without an index, and runs `hosts/cli/tests/newcomer.rs` on it.
///
/// # Errors
/// Where Python lacks a package, the wheel cannot be installed, or the test fails.
pub fn check(workspace: &Workspace, options: &NewcomerOptions) -> Result<()> {
    let requirements = "tests/golden/scripts/requirements.txt";
    require(&options.python, &workspace.root.join(requirements))?;
    let out = options
        .out
        .clone()
        .unwrap_or_else(|| workspace.target.join("newcomer"));
    if out.exists() {
        fs::remove_dir_all(&out).with_context(|| format!("cannot clear {}", out.display()))?;
    }
    fs::create_dir_all(&out).with_context(|| format!("cannot make {}", out.display()))?;
    let wheel = dist::pack(workspace, &dist::DistOptions::into(out.clone()))?;
    let environment = out.join("environment");
    run(Command::new(&options.python)
        .args(["-m", "venv"])
        .arg(&environment))?;
    let programs = environment.join("bin");
    run(Command::new(programs.join("pip"))
        .args(["install", "--quiet", "--no-index"])
        .arg(&wheel))?;
    run(workspace
        .cargo()
        .args(["test", "--release", "--workspace", "--test", "newcomer"])
        .env("ESPALIER_NEWCOMER_PROGRAMS", &programs)
        .env("ESPALIER_NEWCOMER_PYTHON", found(&options.python)?))
}

/// The program as it is found from any folder.
fn found(python: &Path) -> Result<PathBuf> {
    if python.components().count() == 1 {
        return Ok(python.to_owned());
    }
    // The links of an environment lead to its packages: they are kept.
    std::path::absolute(python).with_context(|| format!("no {}", python.display()))
}
