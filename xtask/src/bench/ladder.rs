//! The rungs of `host plan --ladder` -> trainings of the 124M shape, with the most memory that the
//! operating system counted, beside the plan.

mod page;
mod plot;
mod rung;

use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::{Args, value_parser};

use super::backends::shape;
use crate::backends;
use crate::peers::speed::Preset;
use crate::workspace::Workspace;
use rung::{LadderInputs, MeasuredRung};

/// The ladders.
const LADDERS: [&str; 2] = ["optimizers", "recipe"];
/// Most distance of a peak from the plan, as a share.
const MOST_APART: f64 = 0.1;

/// Options of `cargo xtask bench ladder`.
#[derive(Args)]
pub struct LadderOptions {
    /// The model's shape; its weights are random
    #[arg(long, value_enum, default_value_t = Preset::Llama124m)]
    model: Preset,
    /// Tokens of a packed micro-batch; rows have an eighth of them
    #[arg(long, default_value_t = 1024, value_parser = value_parser!(u64).range(64..=65536))]
    tokens: u64,
    /// Steps of a run, which is then stopped
    #[arg(long, default_value_t = 2, value_parser = value_parser!(u64).range(2..))]
    steps: u64,
    /// Where `ladder.md` and `ladder.svg` go [default: docs]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Trains every rung of both ladders, and writes the page and the plot.
///
/// # Errors
/// Where a run fails, a peak is far from its plan, or a file cannot be written.
pub fn measure(workspace: &Workspace, options: &LadderOptions) -> Result<()> {
    let inputs = LadderInputs {
        host: backends::host(workspace)?,
        folder: workspace.target.join("bench-ladder"),
        tokens: options.tokens,
        steps: options.steps as usize,
    };
    // More rows than the steps take: the runs are stopped before they write the model.
    let rows = 2 * options.steps * rung::ROWS;
    let of_row = options.tokens / rung::ROWS;
    shape(options.model).make_inputs(&inputs.folder, rows, of_row)?;
    let mut ladders = Vec::new();
    for name in LADDERS {
        ladders.push((name, inputs.ladder(name)?));
    }
    let out = options.out.clone();
    let out = out.unwrap_or_else(|| workspace.root.join("docs"));
    page::write(&out.join("ladder.md"), options, &ladders)?;
    plot::draw(&out.join("ladder.svg"), &ladders)?;
    ladders
        .iter()
        .flat_map(|(_, rungs)| rungs)
        .try_for_each(check)
}

/// Refuses a peak that is far from its plan.
fn check(rung: &MeasuredRung) -> Result<()> {
    let ratio = rung.peak_bytes as f64 / rung.planned_bytes as f64;
    ensure!(
        (ratio - 1.0).abs() <= MOST_APART,
        "{}: the run held {} bytes, the plan says {}",
        rung.name,
        rung.peak_bytes,
        rung.planned_bytes
    );
    Ok(())
}
