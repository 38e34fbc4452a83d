//! Measured runs of large shapes -> a page in Markdown.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// Settings of all runs beside the optimizer.
pub const SETTINGS: [&str; 9] = [
    "model.init=random",
    "model.params=bf16",
    "model.compute=bf16",
    "model.recompute=layer",
    "optim.in_backward=true",
    "optim.clip_norm=0",
    "data.max_seq_len=64",
    "data.batch_size=1",
    "data.micro_batch=1",
];

/// The plan of a run.
#[derive(Clone, Copy)]
pub struct PlannedBytes {
    /// Parameters.
    pub params: u64,
    /// Bytes of the peak.
    pub peak: u64,
    /// Bytes of the weights.
    pub weights: u64,
    /// Bytes of activations and of kernels' workspace.
    pub activations: u64,
}

/// The memory of a process.
pub struct Measured {
    /// The model that has the shape.
    pub name: &'static str,
    /// The optimizer.
    pub optimizer: &'static str,
    /// What the process did.
    pub what: String,
    /// The plan.
    pub plan: PlannedBytes,
    /// The most bytes that it held, without mapped files.
    pub peak_bytes: u64,
}

/// Writes the page.
///
/// # Errors
/// Where the file cannot be written.
pub fn write(path: &Path, measured: &[Measured]) -> Result<()> {
    let mut page = String::from(
        "# Full fine-tuning of large models\n\n\
         `cargo xtask bench full` makes this page: Llamas of random weights in bf16, updated in the \
         backward\npass, one row of 64 tokens a step. The figures are the operating system's: the \
         most resident\nmemory (`VmHWM`) without mapped pages of files, beside the peak that \
         `host plan` states before it\nreads a weight. A run that exceeds its plan by 5 % fails the \
         command.\n\n\
         | shape | million params | optimizer | what | peak, GB | planned, GB | bytes a param |\n\
         |---|---:|---|---|---:|---:|---:|\n",
    );
    for one in measured {
        let params = one.plan.params as f64;
        writeln!(
            page,
            "| {} | {:.0} | `{}` | {} | {:.3} | {:.3} | {:.2} |",
            one.name,
            params / 1e6,
            one.optimizer,
            one.what,
            one.peak_bytes as f64 / 1e9,
            one.plan.peak as f64 / 1e9,
            one.peak_bytes as f64 / params
        )?;
    }
    let settings: Vec<String> = SETTINGS
        .iter()
        .map(|setting| format!("    --set {setting}"))
        .collect();
    write!(
        page,
        "\nA weight takes 2 bytes, its 8-bit state 2.03. The rest is the f32 gradients of the largest \
         unit,\nwhich are applied and freed one unit at a time, and activations. Neither loading, the \
         optimizer,\na checkpoint, nor the written model holds a second copy. Runs of 2 steps alone \
         are stopped after\nthem and write no weights.\n\n\
         The options of all runs, beside `optim.name`; `host plan` takes the same:\n\n{}\n",
        settings.join("\n")
    )?;
    fs::write(path, page).with_context(|| format!("cannot write {}", path.display()))
}
