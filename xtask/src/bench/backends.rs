//! The same training on `cpu` and on the backends of other libraries -> how their step times
//! compare.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::Args;

use super::random_model::{Shape, Training, UNCOUNTED_STEPS, counted};
use crate::backends::{self, Library};
use crate::median::median;
use crate::peers::speed::Preset;
use crate::workspace::Workspace;

/// Options of `cargo xtask bench backends`.
#[derive(Args)]
pub struct BenchBackendsOptions {
    /// The backends beside `cpu`
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Library::ALL)]
    only: Vec<Library>,
    /// The model's shape; its weights are random
    #[arg(long, value_enum, default_value_t = Preset::Llama124m)]
    model: Preset,
    /// What is trained: `lora` on dense weights, or `nf4,lora`
    #[arg(long, value_delimiter = ';', default_values = ["lora", "nf4,lora"])]
    plugins: Vec<String>,
    /// Number types of products and activations
    #[arg(long, value_delimiter = ',', default_values = ["f32", "bf16"])]
    dtypes: Vec<String>,
    /// Steps of a run; the times of the first two do not count
    #[arg(long, default_value_t = 6)]
    steps: usize,
    /// Rounds, each a run on each backend
    #[arg(long, default_value_t = 2)]
    rounds: usize,
    /// Rows of a step
    #[arg(long, default_value_t = 4)]
    batch: u64,
    /// Tokens of a row
    #[arg(long, default_value_t = 512)]
    sequence: u64,
}

/// A model of this size.
pub const fn shape(model: Preset) -> Shape {
    Shape::new(match model {
        Preset::Llama124m => [768, 12, 12, 4, 2048, 32000],
        Preset::Tiny => [64, 2, 4, 2, 192, 512],
    })
}

/// A host, its plugins, and the model and rows of all runs.
struct Bench<'a> {
    workspace: &'a Workspace,
    options: &'a BenchBackendsOptions,
    host: PathBuf,
    plugins: PathBuf,
    folder: PathBuf,
}

/// Trains on each backend in turns, and prints a line of the table for each kind of training.
///
/// # Errors
/// Where a library is missing, a build fails or a run fails.
pub fn measure(workspace: &Workspace, options: &BenchBackendsOptions) -> Result<()> {
    ensure!(
        options.steps > UNCOUNTED_STEPS && options.rounds > 0,
        "a round, and more than {UNCOUNTED_STEPS} steps"
    );
    let bench = Bench {
        workspace,
        options,
        plugins: backends::build_all(workspace, &options.only)?,
        host: backends::host(workspace)?,
        folder: workspace.target.join("bench-backends"),
    };
    let rows = options.steps as u64 * options.batch;
    shape(options.model).make_inputs(&bench.folder, rows, options.sequence)?;
    let names: Vec<String> = ["cpu".to_owned()]
        .into_iter()
        .chain(options.only.iter().map(Library::to_string))
        .collect();
    let ratios: Vec<String> = names[1..]
        .iter()
        .map(|name| format!("{name} / cpu"))
        .collect();
    println!(
        "\n{:<10} {:<5} {}",
        "plugins",
        "dtype",
        columns(&[&names[..], &ratios[..]].concat())
    );
    for plugins in &options.plugins {
        for dtype in &options.dtypes {
            let mut secs = vec![Vec::new(); names.len()];
            for _ in 0..options.rounds {
                for (name, secs) in names.iter().zip(&mut secs) {
                    secs.extend(bench.steps(name, plugins, dtype)?);
                }
            }
            let medians: Vec<f64> = secs.into_iter().map(median).collect();
            let times = medians.iter().map(|secs| format!("{secs:.3} s"));
            let ratios = medians[1..]
                .iter()
                .map(|secs| format!("{:.2}", secs / medians[0]));
            let shown: Vec<String> = times.chain(ratios).collect();
            println!("{plugins:<10} {dtype:<5} {}", columns(&shown));
        }
    }
    Ok(())
}

impl Bench<'_> {
    /// The step times of a run, in seconds.
    fn steps(&self, backend: &str, plugins: &str, dtype: &str) -> Result<Vec<f64>> {
        let options = self.options;
        let training = Training {
            folder: &self.folder,
            plugins,
            dtype,
            steps: options.steps,
            batch: options.batch,
            sequence: options.sequence,
        };
        let host = backends::command(self.workspace, &self.host, &self.plugins);
        counted(&training.run(host, &["--backend", backend])?, "step_secs")
    }
}

fn columns(words: &[String]) -> String {
    let padded: Vec<String> = words.iter().map(|word| format!("{word:>13}")).collect();
    padded.concat()
}
