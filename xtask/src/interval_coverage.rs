//! Trains many runs that differ in their seeds only, and computes the coverage of the comparison's
//! intervals.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::Args;

use crate::workspace::{Workspace, run};

/// Fewest pairs with which a coverage of 90 to 99 in a hundred differs from full coverage.
const FEWEST_PAIRS: usize = 100;
/// Fewest seeds for which a comparison has a verdict.
const FEWEST_SEEDS: usize = 3;

/// Options of `cargo xtask interval-coverage`.
#[derive(Args)]
pub struct IntervalCoverageOptions {
    /// Pairs of groups of runs
    #[arg(long, default_value_t = 100)]
    pairs: usize,
    /// Seeds of a group
    #[arg(long, default_value_t = 3)]
    seeds: usize,
    /// Keep each run's losses by document in this file, as tests/golden/compare has them
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
}

/// Trains `2 x pairs x seeds` runs of the tiny model, some minutes on two cores, and requires that
/// 90 to 99 of 100 intervals contain 0.
///
/// # Errors
/// Where a run fails or the bounds are missed.
pub fn check(workspace: &Workspace, options: &IntervalCoverageOptions) -> Result<()> {
    let (pairs, seeds) = (options.pairs, options.seeds);
    ensure!(
        pairs >= FEWEST_PAIRS && seeds >= FEWEST_SEEDS,
        "expected at least {FEWEST_PAIRS} pairs of {FEWEST_SEEDS} seeds, found {pairs} of {seeds}: fewer show nothing"
    );
    let mut example = workspace.cargo();
    // With the workspace's features, so that crates are not built twice.
    example.args([
        "build",
        "--release",
        "--quiet",
        "--workspace",
        "--example",
        "interval_coverage",
    ]);
    run(&mut example)?;
    let program = workspace.target.join("release/examples/interval_coverage");
    let mut interval_coverage = std::process::Command::new(program);
    interval_coverage.args([pairs.to_string(), seeds.to_string()]);
    run(interval_coverage.args(&options.record))
}
