//! Trainings of models of random weights, ever larger or on ever longer rows -> how time and memory
//! of a step grow.

mod plot;
mod point;
mod table;

use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::Args;

use super::random_model::{Shape, UNCOUNTED_STEPS};
use crate::backends;
use crate::workspace::Workspace;
use point::{Point, Setting};

/// The models, the smallest first.
const SHAPES: [Shape; 7] = [
    Shape::new([64, 2, 4, 2, 192, 8192]),
    Shape::new([128, 6, 4, 2, 384, 8192]),
    Shape::new([256, 8, 4, 2, 768, 8192]),
    Shape::new([512, 12, 8, 4, 1536, 8192]),
    Shape::new([768, 12, 12, 4, 2048, 8192]),
    Shape::new([1024, 24, 16, 8, 2816, 8192]),
    Shape::new([2048, 21, 32, 8, 5632, 8192]),
];

/// The model whose rows become longer.
const OF_TOKENS: usize = 4;
/// Tokens of the rows that the models are compared on.
const TOKENS: u64 = 512;
/// Tokens of the rows that one model is trained on.
const ALL_TOKENS: [u64; 6] = [256, 512, 1024, 2048, 4096, 8192];

/// Options of `cargo xtask bench growth`.
#[derive(Args)]
pub struct GrowthOptions {
    /// What is trained
    #[arg(long, default_value = "nf4,lora")]
    plugins: String,
    /// Number type of products and activations
    #[arg(long, default_value = "bf16")]
    dtype: String,
    /// Steps of a run, of one row each; the times of the first two do not count
    #[arg(long, default_value_t = 5)]
    steps: usize,
    /// Only the smallest models, to try the command
    #[arg(long, value_name = "COUNT", default_value_t = SHAPES.len())]
    models: usize,
    /// Longest row
    #[arg(long, default_value_t = ALL_TOKENS[ALL_TOKENS.len() - 1])]
    longest: u64,
    /// Where `growth.md` and `growth.svg` go [default: docs]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Trains every model on rows of the same length, and one model on rows of every length. Writes the
/// table and the plot.
///
/// # Errors
/// Where a run fails or a file cannot be written.
pub fn measure(workspace: &Workspace, options: &GrowthOptions) -> Result<()> {
    ensure!(
        options.steps > UNCOUNTED_STEPS && options.models > 0 && options.longest >= ALL_TOKENS[0],
        "a model, more than {UNCOUNTED_STEPS} steps, and rows of {} tokens or more",
        ALL_TOKENS[0]
    );
    let setting = Setting {
        host: backends::host(workspace)?,
        folder: workspace.target.join("bench-growth"),
        root: workspace.root.clone(),
        options,
    };
    let models = SHAPES.iter().take(options.models);
    let by_params = models
        .map(|shape| setting.run(shape, TOKENS))
        .collect::<Result<Vec<Point>>>()?;
    let tokens = ALL_TOKENS
        .into_iter()
        .filter(|&tokens| tokens <= options.longest);
    let of_tokens = &SHAPES[OF_TOKENS.min(options.models - 1)];
    let by_tokens = tokens
        .map(|tokens| setting.run(of_tokens, tokens))
        .collect::<Result<Vec<Point>>>()?;
    let out = options.out.clone();
    let out = out.unwrap_or_else(|| workspace.root.join("docs"));
    table::write(&out.join("growth.md"), options, [&by_params, &by_tokens])?;
    plot::draw(&out.join("growth.svg"), [&by_params, &by_tokens])
}
