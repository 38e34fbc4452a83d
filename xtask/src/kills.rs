//! Kills ranks of running trainings, one after the other, and wants every survivor to end in time
//! and every run to go on.

use anyhow::Result;
use clap::Args;

use crate::workspace::{Workspace, run};

/// Options of `cargo xtask kills`.
#[derive(Args)]
pub struct Options {
    /// Processes killed or stopped
    #[arg(long, default_value_t = 60)]
    kills: u32,
}

/// Runs the test of kills with as many as were asked for: a quarter of a minute each on two cores.
///
/// # Errors
/// Where a survivor ends late or with another exit code, or a run that goes on comes to other bits.
pub fn check(workspace: &Workspace, options: &Options) -> Result<()> {
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
