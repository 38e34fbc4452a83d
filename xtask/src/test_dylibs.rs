//! Runs the suite with a host that has no linked plugins: every shipped plugin is loaded from its
//! library.

use std::fs;

use anyhow::{Context, Result};
use clap::Args;

use crate::plugins;
use crate::workspace::{Workspace, run};

/// Options of `cargo xtask test-dylibs`.
#[derive(Args)]
pub struct TestDylibsOptions {}

/// Gathers the libraries beside the executable, runs the tests that need a host without linked
/// plugins, and removes the libraries.
///
/// # Errors
/// Where a library cannot be built or a test fails.
pub fn check(workspace: &Workspace, _: &TestDylibsOptions) -> Result<()> {
    let beside = workspace.target.join("release/plugins");
    plugins::gather(workspace, &plugins::PluginsOptions::into(beside.clone()))?;
    let mut test = workspace.cargo();
    test.args(["test", "--release", "--no-default-features"]);
    test.args(["--no-fail-fast", "--package", "espalier-tests"]);
    test.args(["--package", "espalier-cli"]);
    test.env("HOST_PLUGIN_PATH", &beside);
    // The results of trying libraries are recorded there; those of an earlier build are removed.
    let data = workspace.target.join("test-dylibs-data");
    let _ = fs::remove_dir_all(&data);
    test.env("XDG_DATA_HOME", data);
    let tested = run(&mut test);
    // A host with linked plugins would find these first.
    fs::remove_dir_all(&beside).with_context(|| format!("cannot remove {}", beside.display()))?;
    tested
}
