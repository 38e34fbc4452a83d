//! Runs side by side -> ratios: the cost of third-party plugins relative to the shipped ones.

mod backends;
mod full;
mod growth;
mod ladder;
mod random_model;
mod setup;
mod sharding;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};
use clap::{Args, Subcommand};

use setup::BenchSetup;

use crate::golden::require;
use crate::workspace::{Workspace, run};

/// Largest extra time of a third party's quantizer over the shipped one, as a share.
const MOST_BEYOND: f64 = 0.1;

/// Options of `cargo xtask bench`.
#[derive(Args)]
pub struct BenchOptions {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Subcommand)]
enum Bench {
    /// Packed training with `linear4`, a third party's quantizer described as data, beside `nf4`
    ThirdParty {
        /// Rounds, each a run of both
        #[arg(long, default_value_t = 3)]
        rounds: usize,
        /// Steps of a run
        #[arg(long, default_value_t = 8)]
        steps: usize,
    },
    /// `fsdp` beside `ddp` on a model that fits, with the same ranks and rows
    Sharding {
        /// Rounds, each a run of both
        #[arg(long, default_value_t = 3)]
        rounds: usize,
        /// Steps of a run
        #[arg(long, default_value_t = 8)]
        steps: usize,
        /// Ranks of one process
        #[arg(long, default_value_t = 2)]
        ranks: u32,
    },
    /// Calls through the boundary between host and plugins, as a share of a training step
    #[command(name = "door")]
    BoundaryCost,
    /// The step times of `cpu`, `tch` and `candle` on a model of random weights
    Backends(backends::BenchBackendsOptions),
    /// Time and memory of a step from 1 million to 1 billion parameters and from 256 to 8192
    /// tokens: a table and a plot
    Growth(growth::GrowthOptions),
    /// Memory of full fine-tuning of 1, 3 and 7 billion random weights, by the operating system's
    /// count, beside the plan: a page
    Full(full::FullOptions),
    /// The rungs of `host plan --ladder` trained on the 124M shape: memory by the operating
    /// system's count, beside the plan: a page and a plot
    Ladder(ladder::LadderOptions),
    /// Encoding by the plugin `hqq` beside the hqq library, on the same weights in turns
    Hqq {
        /// A Python with the packages of tests/golden/scripts/requirements.txt
        #[arg(long, value_name = "PYTHON")]
        python: PathBuf,
        /// Rounds, each an encoding by both
        #[arg(long, default_value_t = 3)]
        rounds: usize,
        /// Rows of the weights
        #[arg(long, default_value_t = 4096)]
        rows: usize,
        /// Columns of each weight
        #[arg(long, default_value = "4096,11008")]
        cols: String,
    },
}

/// Measures, and prints the results.
///
/// # Errors
/// Where a run fails or a bound is missed.
pub fn measure(workspace: &Workspace, options: &BenchOptions) -> Result<()> {
    match &options.bench {
        Bench::ThirdParty { rounds, steps } => third_party(workspace, *rounds, *steps),
        Bench::Sharding {
            rounds,
            steps,
            ranks,
        } => sharding::measure(workspace, *rounds, *steps, *ranks),
        Bench::Hqq {
            python,
            rounds,
            rows,
            cols,
        } => {
            let sizes = [
                ("--rounds", rounds.to_string()),
                ("--rows", rows.to_string()),
            ];
            hqq(
                workspace,
                python,
                &[sizes.as_slice(), &[("--cols", cols.clone())]].concat(),
            )
        }
        Bench::Backends(options) => backends::measure(workspace, options),
        Bench::Full(options) => full::measure(workspace, options),
        Bench::Ladder(options) => ladder::measure(workspace, options),
        Bench::Growth(options) => growth::measure(workspace, options),
        Bench::BoundaryCost => run(workspace
            .cargo()
            .args([
                "test",
                "--release",
                "--quiet",
                "--package",
                "espalier-tests",
            ])
            .args(["--test", "boundary_cost", "--", "--nocapture"])),
    }
}

/// The library's Python script runs our encoder, so that both encode the same weights one after the
/// other.
fn hqq(workspace: &Workspace, python: &Path, sizes: &[(&str, String)]) -> Result<()> {
    require(
        python,
        &workspace.root.join("tests/golden/scripts/requirements.txt"),
    )?;
    let example = ["--package", "espalier-tests", "--example", "hqq_encode"];
    run(workspace
        .cargo()
        .args(["build", "--release", "--quiet"])
        .args(example))?;
    let mut peer = Command::new(python);
    peer.arg(workspace.root.join("tests/peers/time_hqq.py"))
        .arg(workspace.target.join("release/examples/hqq_encode"))
        .arg(workspace.target.join("bench/hqq"))
        .env("PYTHONDONTWRITEBYTECODE", "1");
    for (name, value) in sizes {
        peer.arg(name).arg(value);
    }
    run(&mut peer)
}

fn third_party(workspace: &Workspace, rounds: usize, steps: usize) -> Result<()> {
    ensure!(rounds > 0 && steps > 1, "a round and two steps at least");
    let setup = BenchSetup::prepare(workspace, &["linear4"])?;
    let one_row = ["--set", "data.batch_size=1", "--plugins"];
    let [nf4, linear4] =
        ["nf4,lora", "linear4,lora"].map(|plugins| [&one_row[..], &[plugins]].concat());
    let [ours, theirs] = setup.in_turns([&nf4, &linear4], rounds, steps)?;
    let ratio = theirs.median / ours.median;
    println!(
        "nf4 {:.4} s a step, linear4 {:.4} s: {ratio:.3} times nf4's (medians; at best {:.4} s and {:.4} s)",
        ours.median, theirs.median, ours.least, theirs.least
    );
    ensure!(
        ratio <= 1.0 + MOST_BEYOND,
        "linear4 takes {ratio:.3} times nf4's step, expected at most {}",
        1.0 + MOST_BEYOND
    );
    Ok(())
}
