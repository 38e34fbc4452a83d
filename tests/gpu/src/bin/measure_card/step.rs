//! The step of QLoRA on a model of Llama 3 8B's shape with random weights, by the host.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use espalier_interface::Backend;
use espalier_tests_gpu::Llama;
use serde_json::json;

use crate::host_training::{HostTraining, numbers};
use crate::rows::Rows;
use crate::setting::{Setting, told};

/// Steps at the start whose times do not count: they touch memory for the first time.
pub const UNCOUNTED_STEPS: u64 = 2;

/// Rows of a step.
pub const BATCH: u64 = 2;

/// Formats whose steps are compared with the first one's.
const FORMATS: [&str; 5] = ["nf4", "hqq", "int4", "mxfp4", "nvfp4"];

/// Most layers of that model.
const FORMATS_LAYERS: u64 = 8;

/// Time between two looks at the card's memory.
const LOOK: Duration = Duration::from_millis(200);

/// The model, the tokens of a row, and the steps that are trained.
pub fn shape(setting: &Setting) -> (Llama, u64, u64) {
    if setting.is_small {
        return (Llama::TINY, 8, UNCOUNTED_STEPS + 1);
    }
    (
        Llama::of_8b(setting.layers.unwrap_or(32)),
        2048,
        UNCOUNTED_STEPS + 6,
    )
}

/// Measures steps that keep all activations.
///
/// # Errors
/// Where the run fails.
pub fn without_recompute(setting: &Setting, rows: &mut Rows) -> Result<()> {
    measure(setting, rows, "none")
}

/// Measures steps that compute activations again in the backward pass.
///
/// # Errors
/// Where the run fails.
pub fn with_recompute(setting: &Setting, rows: &mut Rows) -> Result<()> {
    measure(setting, rows, "layer")
}

/// Measures steps of a smaller model with each of the shipped formats of about 4 bits, and their
/// time beside NF4's.
///
/// # Errors
/// Where a run fails.
pub fn of_formats(setting: &Setting, rows: &mut Rows) -> Result<()> {
    let folder = setting.scratch("step-formats")?;
    let training = training(setting, &folder, FORMATS_LAYERS)?;
    let mut nf4 = None;
    for quantizer in FORMATS {
        let plugins = format!("{quantizer},lora");
        let words = ["--backend", "cuda", "--plugins", &plugins];
        let words = [&words[..], &setting.set(&["adapter.lora.rank=16"])].concat();
        let secs = numbers(&training.run(setting, quantizer, &words)?, "step_secs")?;
        let counted = counted_secs(&secs)?;
        let nf4 = *nf4.get_or_insert(counted);
        rows.add(&json!({
            "quantizer": quantizer,
            "layers": training.model.layers,
            "step_secs": secs,
            "median_step_secs": counted,
            "of_nf4": counted / nf4,
        }))?;
    }
    Ok(())
}

fn measure(setting: &Setting, rows: &mut Rows, recompute: &str) -> Result<()> {
    let folder = setting.scratch(&format!("step-{recompute}"))?;
    let training = training(setting, &folder, u64::MAX)?;
    let tokens = BATCH * training.sequence;
    let policy = format!("model.recompute={recompute}");
    let mut words = vec!["--backend", "cuda", "--plugins", "nf4,lora"];
    words.extend(setting.set(&["adapter.lora.rank=16", &policy]));
    let begin = Instant::now();
    let (run, peak_bytes) = watched(setting, || training.run(setting, "run", &words))?;
    let secs = numbers(&run, "step_secs")?;
    let counted = counted_secs(&secs)?;
    rows.add(&json!({
        "program": "host",
        "recompute": recompute,
        "settings": setting.settings,
        "layers": training.model.layers,
        "tokens_per_step": tokens,
        "step_secs": secs,
        "median_step_secs": counted,
        "tokens_per_sec": tokens as f64 / counted,
        "peak_device_bytes": peak_bytes,
        "whole_secs": begin.elapsed().as_secs_f64(),
        "losses": numbers(&run, "loss")?,
    }))
}

/// A training of the setting's model with at most so many layers, and its inputs.
fn training<'a>(setting: &Setting, folder: &'a Path, most_layers: u64) -> Result<HostTraining<'a>> {
    let (model, sequence, steps) = shape(setting);
    let training = HostTraining {
        folder,
        model: Llama {
            layers: model.layers.min(most_layers),
            ..model
        },
        compute: "bf16",
        steps,
        batch: BATCH,
        micro_batch: BATCH,
        sequence,
    };
    training.make_inputs()?;
    Ok(training)
}

/// Calls `work`, and returns the most bytes of the card's memory that were taken meanwhile beyond
/// those that were taken before.
///
/// # Errors
/// Where the card cannot be asked, or `work` fails.
pub fn watched<T>(setting: &Setting, work: impl FnOnce() -> Result<T>) -> Result<(T, u64)> {
    let backend = setting.backend()?;
    // Keeps the card's context, which each question would make and destroy, and which has memory
    // of its own.
    let _device = backend.open(0).map_err(told)?;
    let free = || -> Result<u64> {
        let devices = backend.devices().map_err(told)?;
        let device = devices.first().context("there is no card")?;
        Ok(device.free_bytes)
    };
    let before = free()?;
    let (least, is_over) = (AtomicU64::new(before), AtomicBool::new(false));
    let done = thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                // A look that fails is not the work's failure.
                if let Ok(free) = free() {
                    least.fetch_min(free, Ordering::Relaxed);
                }
                thread::sleep(LOOK);
            }
        });
        let done = work();
        is_over.store(true, Ordering::Relaxed);
        done
    })?;
    Ok((done, before.saturating_sub(least.into_inner())))
}

/// The median of the steps that count.
///
/// # Errors
/// Where none does.
pub fn counted_secs(secs: &[f64]) -> Result<f64> {
    let counted = median(&secs[secs.len().min(UNCOUNTED_STEPS as usize)..]);
    counted.context("no step counts")
}

/// The middle value, of an even number the larger of the two; none without values.
fn median(values: &[f64]) -> Option<f64> {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}
