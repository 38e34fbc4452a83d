//! Turns many training runs that differ in nothing but their seeds into one verdict: are intervals
//! honest?

use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::Args;

use crate::workspace::{Workspace, run};

/// Fewest pairs of which 90 to 99 in a hundred can be told from all.
const FEWEST_PAIRS: usize = 100;
/// Fewest seeds of which a comparison gives a verdict.
const FEWEST_SEEDS: usize = 3;

/// Options of `cargo xtask interval-coverage`.
#[derive(Args)]
pub struct Options {
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

/// Trains `2 x pairs x seeds` runs of the tiny model, some minutes on two cores, and holds how many
/// intervals contain 0 to 90 to 99 of 100.
///
/// # Errors
/// Where a run fails or the bounds are missed.
pub fn check(workspace: &Workspace, options: &Options) -> Result<()> {
    let (pairs, seeds) = (options.pairs, options.seeds);
    ensure!(
        pairs >= FEWEST_PAIRS && seeds >= FEWEST_SEEDS,
        "expected at least {FEWEST_PAIRS} pairs of {FEWEST_SEEDS} seeds, found {pairs} of {seeds}: fewer tell nothing"
    );
    let mut example = workspace.cargo();
    // The workspace's features, so that nothing is built twice.
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
