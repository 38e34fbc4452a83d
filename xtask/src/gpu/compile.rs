//! Compiles every kernel with NVIDIA's compiler, and writes the record of registers, spills and
//! instructions.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;
use clap::Args;

use super::nvrtc;
use crate::workspace::{Workspace, run};

/// Options of `cargo xtask gpu compile`.
#[derive(Args)]
pub struct CompileOptions {
    /// Use the NVRTC in the target directory, and download none
    #[arg(long)]
    offline: bool,
    /// Download NVRTC, and compile nothing
    #[arg(long, conflicts_with = "offline")]
    fetch: bool,
    /// A Python with pip, which downloads
    #[arg(long, value_name = "PYTHON", default_value = "python3")]
    python: PathBuf,
    /// Where the record goes [default: docs/gpu/kernels.md]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Downloads NVRTC unless it is there, compiles every kernel for six kinds of cards, and writes the
/// record.
///
/// # Errors
/// Where NVRTC cannot be had, a kernel does not compile or spills, or lacks an instruction that its
/// speed stands on.
pub fn check(workspace: &Workspace, options: &CompileOptions) -> Result<()> {
    let libraries = nvrtc::fetched(workspace, &options.python, options.offline)?;
    println!("NVRTC is in {}", libraries.display());
    if options.fetch {
        return Ok(());
    }
    let mut example = workspace.cargo();
    // With the workspace's features, so that crates are not built twice.
    example.args(["build", "--release", "--quiet", "--workspace"]);
    run(example.args(["--example", "kernel_records"]))?;
    let out = workspace.root.join("docs/gpu/kernels.md");
    let out = options.out.clone().unwrap_or(out);
    let mut records = Command::new(workspace.target.join("release/examples/kernel_records"));
    let disassembler = nvrtc::disassembler(workspace);
    run(records.arg(libraries).arg(disassembler).arg(out))
}
