//! Runs the whole quickstart and checks from its metrics whether the model learned to answer.

mod picture;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::Value;

use crate::workspace::{Workspace, run};

/// Largest share of held-out questions answered word for word before training.
const MOST_BEFORE: f64 = 0.05;
/// Least share after training. The most frequent answer of each kind is right in a quarter.
const LEAST_AFTER: f64 = 0.8;

/// The command, but for the folder of the run.
const COMMAND: &str = "host train --config configs/quickstart.toml";

/// Options of `cargo xtask quickstart`.
#[derive(Args)]
pub struct QuickstartOptions {
    /// Where the run goes; replaced where it exists [default: the target directory's `quickstart`]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Draws the terminal as the run leaves it; needs an --out as the picture shows it
    #[arg(long, value_name = "FILE", requires = "out")]
    picture: Option<PathBuf>,
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
        .args(["build", "--release", "--quiet", "--bin", "host"]))?;
    let mut host = host(workspace, &out)?;
    match &options.picture {
        None => run(&mut host)?,
        Some(picture) => draw(&mut host, picture, &workspace.root)?,
    }
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

/// The command that trains into `out`, found on PATH as a user's is.
fn host(workspace: &Workspace, out: &Path) -> Result<Command> {
    let built = workspace.target.join("release");
    let path = env::var_os("PATH").unwrap_or_default();
    let path = env::join_paths([built].into_iter().chain(env::split_paths(&path)))?;
    let mut host = Command::new("host");
    host.args(COMMAND.split(' ').skip(1)).arg("--out").arg(out);
    host.current_dir(&workspace.root).env("PATH", path);
    Ok(host)
}

/// Runs `host` and draws what it printed, with the repository at `root` as a folder of the user.
fn draw(host: &mut Command, picture: &Path, root: &Path) -> Result<()> {
    let output = host.output().context("cannot start the host")?;
    let texts = [output.stderr, output.stdout];
    let [progress, summary] = texts.map(|text| String::from_utf8_lossy(&text).into_owned());
    print!("{progress}{summary}");
    ensure!(output.status.success(), "the run failed: {}", output.status);
    let summary = summary.replace(&root.display().to_string(), "~/espalier");
    let lines = picture::kept(&progress).chain(summary.lines());
    fs::write(picture, picture::draw(COMMAND, lines))
        .with_context(|| format!("cannot write {}", picture.display()))
}

fn exact_matches(metrics: &str) -> Result<Vec<f64>> {
    let lines = metrics.lines().map(serde_json::from_str::<Value>);
    let lines = lines.collect::<Result<Vec<_>, _>>()?;
    Ok(lines
        .iter()
        .filter_map(|line| line["eval_exact_match"].as_f64())
        .collect())
}
