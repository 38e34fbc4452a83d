//! Runs of our host -> comparisons with the real peers, by the scripts in `tests/peers`.

mod generate;
pub mod speed;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};

use crate::backends;
use crate::golden::require;
use crate::workspace::{Workspace, run};

/// Options of `cargo xtask peers`.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct PeersOptions {
    #[command(subcommand)]
    timed: Option<Timed>,
    #[command(flatten)]
    checks: Option<Checks>,
}

#[derive(Subcommand)]
enum Timed {
    /// Time training by the host beside the peers; compare losses, memory and loading
    Speed(speed::SpeedOptions),
    /// Time answers by the host beside transformers and bitsandbytes
    Generate(generate::GenerateOptions),
}

/// The comparisons of files and losses.
#[derive(Args)]
struct Checks {
    /// A Python with the packages of tests/golden/scripts/requirements.txt
    #[arg(long, value_name = "PYTHON")]
    python: PathBuf,
    /// Where the runs go [default: the target directory's `peers`]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Only scripts whose name contains this
    #[arg(value_name = "NAME")]
    filter: Option<String>,
}

/// Third parties' adapters whose files are compared with PEFT's, beside the shipped ones.
const SAMPLES: [&str; 1] = ["hira"];

/// Compares with the peers: training by `speed`, otherwise files and losses.
///
/// # Errors
/// Where Python lacks a peer, a program fails, or a difference is found.
pub fn compare(workspace: &Workspace, options: &PeersOptions) -> Result<()> {
    match (&options.timed, &options.checks) {
        (Some(Timed::Speed(options)), _) => speed::measure(workspace, options),
        (Some(Timed::Generate(options)), _) => generate::measure(workspace, options),
        (None, Some(checks)) => check(workspace, checks),
        (None, None) => bail!("pass --python PYTHON"),
    }
}

/// Builds the host and [`SAMPLES`], and runs every script as `PYTHON SCRIPT HOST GOLDEN OUT`.
///
/// # Errors
/// Where Python lacks a peer, no script matches, or one of them finds a difference.
fn check(workspace: &Workspace, options: &Checks) -> Result<()> {
    let golden = workspace.root.join("tests/golden");
    require(&options.python, &golden.join("scripts/requirements.txt"))?;
    let host = backends::host(workspace)?;
    let example = ["--package", "espalier-tests", "--example", "logits"];
    run(workspace
        .cargo()
        .args(["build", "--release", "--quiet"])
        .args(example))?;
    let logits = workspace.target.join("release/examples/logits");
    let out = options
        .out
        .clone()
        .unwrap_or_else(|| workspace.target.join("peers"));

    let samples = out.join("samples");
    fs::create_dir_all(&samples).with_context(|| format!("cannot make {}", samples.display()))?;
    for sample in SAMPLES {
        workspace.put_sample(sample, &samples)?;
    }

    let scripts = scripts(&workspace.root.join("tests/peers"), options)?;
    let mut failed = Vec::new();
    for script in &scripts {
        println!("== {}", script.display());
        let mut command = Command::new(&options.python);
        command.arg(script).arg(&host).arg(&golden).arg(&out);
        command
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("ESPALIER_LOGITS", &logits)
            .env("ESPALIER_SAMPLES", &samples)
            .env("PYTHONPATH", golden.join("scripts"));
        if let Err(error) = run(&mut command) {
            eprintln!("{error:#}");
            failed.push(script.display().to_string());
        }
    }
    if !failed.is_empty() {
        bail!(
            "{} of {} failed: {}",
            failed.len(),
            scripts.len(),
            failed.join(", ")
        );
    }
    Ok(())
}

/// The scripts in `folder` that are asked for, sorted.
///
/// # Errors
/// Where the folder cannot be read or none matches.
fn scripts(folder: &Path, options: &Checks) -> Result<Vec<PathBuf>> {
    let mut scripts: Vec<PathBuf> = folder
        .read_dir()
        .with_context(|| format!("cannot list {}", folder.display()))?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()?;
    scripts.retain(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("check_")
            && name.ends_with(".py")
            && options
                .filter
                .as_ref()
                .is_none_or(|filter| name.contains(filter.as_str()))
    });
    scripts.sort();
    if scripts.is_empty() {
        bail!("no script in {} matches", folder.display());
    }
    Ok(scripts)
}
