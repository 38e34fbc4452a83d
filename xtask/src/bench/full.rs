//! Full fine-tuning of large shapes with random weights in bf16 -> the most memory that the
//! operating system counted, beside the plan.

mod large_run;
mod page;

use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::Args;

use super::backends::shape;
use super::random_model::Shape;
use crate::backends;
use crate::peers::speed::Preset;
use crate::workspace::Workspace;
use large_run::{LargeRun, Until};
use page::Measured;

/// Most memory over the plan, as a share.
const MOST_BEYOND: f64 = 0.05;
/// Most memory of the 7B run with SGD.
const MOST_SGD: u64 = 16_000_000_000;
/// Most memory with `adamw8bit`, beside activations, as a multiple of the weights' bytes, where the
/// largest unit is a small part of the model.
const MOST_8BIT: f64 = 2.1;
/// Bytes of the weights of a model with many units.
const LARGE: u64 = 4_000_000_000;

/// The runs, the largest first: its memory is free at the start.
const RUNS: [LargeRun; 4] = [
    LargeRun {
        name: "Llama 2 7B",
        shape: Shape::new([4096, 32, 32, 32, 11008, 32000]),
        optimizer: "sgd",
        until: Until::Steps(2),
    },
    LargeRun {
        name: "Sheared Llama 2.7B",
        shape: Shape::new([2560, 32, 20, 20, 6912, 32000]),
        optimizer: "adamw8bit",
        until: Until::Steps(2),
    },
    LargeRun {
        name: "TinyLlama 1.1B",
        shape: Shape::new([2048, 22, 32, 4, 5632, 32000]),
        optimizer: "adamw8bit",
        until: Until::Written(3),
    },
    LargeRun {
        name: "the 124M shape",
        shape: shape(Preset::Llama124m),
        optimizer: "adamw8bit",
        until: Until::Resumed,
    },
];

/// Options of `cargo xtask bench full`.
#[derive(Args)]
pub struct FullOptions {
    /// Only the smallest shapes, to try the command; the page then lacks the others
    #[arg(long, value_name = "COUNT", default_value_t = RUNS.len())]
    models: usize,
    /// Where `full.md` goes [default: docs]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Trains each shape for some steps, and writes the page.
///
/// # Errors
/// Where a run fails, a bound is missed, or the page cannot be written.
pub fn measure(workspace: &Workspace, options: &FullOptions) -> Result<()> {
    ensure!(
        (1..=RUNS.len()).contains(&options.models),
        "from 1 to {} models",
        RUNS.len()
    );
    let host = backends::host(workspace)?;
    let folder = workspace.target.join("bench-full");
    let runs = RUNS.iter().skip(RUNS.len() - options.models);
    let measured = runs
        .map(|run| run.measure(&host, &folder))
        .collect::<Result<Vec<_>>>()?;
    let measured: Vec<Measured> = measured.into_iter().flatten().collect();
    let out = options.out.clone();
    let out = out.unwrap_or_else(|| workspace.root.join("docs"));
    page::write(&out.join("full.md"), &measured)?;
    measured.iter().try_for_each(check)
}

/// Refuses memory beyond the bounds.
fn check(measured: &Measured) -> Result<()> {
    let Measured { plan, name, .. } = measured;
    let (found, planned) = (measured.peak_bytes as f64, plan.peak as f64);
    ensure!(
        found <= (1.0 + MOST_BEYOND) * planned,
        "{name}: the run held {found} bytes, the plan says {planned}"
    );
    if measured.optimizer == "sgd" {
        ensure!(
            measured.peak_bytes < MOST_SGD,
            "{name}: the run held {found} bytes, expected less than {MOST_SGD}"
        );
    } else if plan.weights > LARGE {
        let beside = found - plan.activations as f64;
        let most = MOST_8BIT * plan.weights as f64;
        ensure!(
            beside <= most,
            "{name}: the run held {beside} bytes beside activations, expected at most {most}"
        );
    }
    Ok(())
}
