//! Runs the suite with a host into which no plugin is linked: every shipped plugin comes through
//! its library.

use std::fs;

use anyhow::{Context, Result};
use clap::Args;

use crate::plugins;
use crate::workspace::{Workspace, run};

/// Options of `cargo xtask test-dylibs`.
#[derive(Args)]
pub struct Options {}

/// Gathers the libraries beside the executable, runs what needs a host without linked plugins, and
/// clears up.
///
/// # Errors
/// Where a library cannot be built or a test fails.
pub fn check(workspace: &Workspace, _: &Options) -> Result<()> {
    let beside = workspace.target.join("release/plugins");
    plugins::gather(workspace, &plugins::Options::into(beside.clone()))?;
    let mut test = workspace.cargo();
    test.args(["test", "--release", "--no-default-features"]);
    test.args(["--package", "espalier-tests", "--package", "espalier-cli"]);
    test.env("HOST_PLUGIN_PATH", &beside);
    // What libraries do when they are tried is remembered there; not what those of an earlier build
    // did.
    let data = workspace.target.join("test-dylibs-data");
    let _ = fs::remove_dir_all(&data);
    test.env("XDG_DATA_HOME", data);
    let tested = run(&mut test);
    // A host with linked plugins would find these first.
    fs::remove_dir_all(&beside).with_context(|| format!("cannot remove {}", beside.display()))?;
    tested
}
