//! Builds the program and its attacks, and passes the options on to the suite in `tests/torture`.

use std::ffi::OsString;
use std::process::Command;

use anyhow::Result;
use clap::Args;

use crate::workspace::{Workspace, run};

/// Options of `cargo xtask torture`, which `--help` of the suite explains.
#[derive(Args)]
#[command(disable_help_flag = true)]
pub struct TortureOptions {
    /// Options of the suite: --minutes, --seed, --only, --try, --at, --help
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    options: Vec<OsString>,
}

/// Runs the attacks and prints their table.
///
/// # Errors
/// Where the program does not survive one of them.
pub fn check(workspace: &Workspace, options: &TortureOptions) -> Result<()> {
    run(workspace
        .cargo()
        .args(["build", "--release", "--workspace", "--quiet"]))?;
    let suite = workspace.target.join("release/torture");
    run(Command::new(suite).args(&options.options))
}
