//! Runs the whole quickstart and checks from its metrics whether the model learned to answer.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::Value;

use crate::workspace::{Workspace, run};

/// Largest share of held-out questions answered word for word before training.
const MOST_BEFORE: f64 = 0.05;
/// Least share after training. The most frequent answer of each kind is right in a quarter.
const LEAST_AFTER: f64 = 0.8;

/// Options of `cargo xtask quickstart`.
#[derive(Args)]
pub struct QuickstartOptions {
    /// Where the run goes; replaced where it exists [default: the target directory's `quickstart`]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Trains as `configs/quickstart.toml` says, some minutes on two cores, and compares exact match
/// with its bounds.
///
/// # Errors
/// Where the run fails or a bound is missed.
pub fn check(workspace: &Workspace, options: &QuickstartOptions) -> Result<()> {
    let out = options
        .out
        .clone()
        .unwrap_or_else(|| workspace.target.join("quickstart"));
    if out.exists() {
        fs::remove_dir_all(&out).with_context(|| format!("cannot clear {}", out.display()))?;
    }
    run(workspace
        .cargo()
        .args(["run", "--release", "--quiet", "--bin", "host", "--"])
        .args(["train", "--config", "configs/quickstart.toml", "--out"])
        .arg(&out))?;
    let shares = exact_matches(&fs::read_to_string(out.join("metrics.jsonl"))?)?;
    let (Some(before), Some(after)) = (shares.first(), shares.last()) else {
        anyhow::bail!("the run answered no held-out question: is run.eval_answers set?");
    };
    ensure!(
        *before <= MOST_BEFORE && *after >= LEAST_AFTER,
        "exact match {before:.3} before and {after:.3} after, expected at most {MOST_BEFORE} and at least {LEAST_AFTER}"
    );
    println!("exact match {before:.3} before, {after:.3} after");
    Ok(())
}

fn exact_matches(metrics: &str) -> Result<Vec<f64>> {
    let lines = metrics.lines().map(serde_json::from_str::<Value>);
    let lines = lines.collect::<Result<Vec<_>, _>>()?;
    Ok(lines
        .iter()
        .filter_map(|line| line["eval_exact_match"].as_f64())
        .collect())
}
