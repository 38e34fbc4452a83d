//! Kills ranks of running trainings, one after the other, and requires that every survivor ends in
//! time and every run resumes.

use anyhow::Result;
use clap::Args;

use crate::workspace::{Workspace, run};

/// Options of `cargo xtask kills`.
#[derive(Args)]
pub struct KillsOptions {
    /// Processes killed or stopped
    #[arg(long, default_value_t = 60)]
    kills: u32,
}

/// Runs the test of kills with the requested number: a quarter of a minute each on two cores.
///
/// # Errors
/// Where a survivor ends late or with another exit code, or a resumed run ends with other bits.
pub fn check(workspace: &Workspace, options: &KillsOptions) -> Result<()> {
    let mut test = workspace.cargo();
    test.args([
        "test",
        "--release",
        "--workspace",
        "--test",
        "kills",
        "--",
        "--nocapture",
    ]);
    test.env("ESPALIER_KILLS", options.kills.to_string());
    run(&mut test)
}
