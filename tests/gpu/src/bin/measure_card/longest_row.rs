//! QLoRA of a model of Llama 3 8B's shape on one long row, within the memory of a small card.

use std::time::Instant;

use anyhow::Result;
use espalier_tests_gpu::Llama;
use serde_json::json;

use crate::host_training::{HostTraining, numbers};
use crate::rows::Rows;
use crate::setting::Setting;
use crate::step::watched;
use crate::streamed_model::MEMORY;

/// Tokens of the row: of multiples of 8192 the largest that `host plan` fits into the memory.
const TOKENS: u64 = 98_304;

/// Measures the part.
///
/// # Errors
/// Where the run fails.
pub fn measure(setting: &Setting, rows: &mut Rows) -> Result<()> {
    let folder = setting.scratch("longest-8b")?;
    let (model, sequence) = if setting.is_small {
        (Llama::TINY, 64)
    } else {
        (Llama::of_8b(setting.layers.unwrap_or(32)), TOKENS)
    };
    let training = HostTraining {
        folder: &folder,
        model,
        compute: "bf16",
        steps: 1,
        batch: 1,
        micro_batch: 1,
        sequence,
    };
    training.make_inputs()?;
    let mut words = vec!["--backend", "cuda", "--plugins", "nf4,lora,fsdp"];
    let settings = [
        MEMORY,
        "adapter.lora.rank=16",
        "model.recompute=layer",
        "sharding.fsdp.offload=params+optimizer",
        "sharding.fsdp.offload_activations=true",
    ];
    words.extend(setting.set(&settings));
    let begin = Instant::now();
    let (run, peak_bytes) = watched(setting, || training.run(setting, "run", &words))?;
    let secs = numbers(&run, "step_secs")?;
    rows.add(&json!({
        "training": "one row",
        "settings": settings,
        "layers": model.layers,
        "tokens": sequence,
        "step_secs": secs,
        "tokens_per_sec": sequence as f64 / secs[0],
        "peak_device_bytes": peak_bytes,
        "peak_host_bytes": numbers(&run, "peak_host_bytes")?,
        "whole_secs": begin.elapsed().as_secs_f64(),
        "losses": numbers(&run, "loss")?,
    }))
}
