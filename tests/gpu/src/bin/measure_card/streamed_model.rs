//! QLoRA of a model of Llama 3 70B's shape with random weights, which stay in the host's memory and
//! come to the card unit by unit, within the memory of a small card.

use std::path::Path;
use std::time::Instant;

use anyhow::{Result, ensure};
use espalier_conformance::largest;
use espalier_tests_gpu::Llama;
use serde_json::{Value as Json, json};

use crate::bus;
use crate::host_training::{HostTraining, numbers};
use crate::rows::Rows;
use crate::setting::Setting;
use crate::step::{BATCH, UNCOUNTED_STEPS, counted_secs, watched};
use crate::trainings::{largest_difference, steps};

/// Memory of the small card that the card stands for.
pub const MEMORY: &str = "backend.cuda.device_memory=24GiB";

/// Weights in the host's memory, one copy for all ranks.
const STREAMED: [&str; 3] = [
    MEMORY,
    "sharding.fsdp.offload=params+optimizer",
    "sharding.fsdp.gather=host-direct",
];

/// Layers of the two models that stay on the card: the time of a step grows with layers.
const RESIDENT_LAYERS: [u64; 2] = [2, 6];

/// Largest relative difference of losses and norms between one rank and two in bf16.
const BOUND: f64 = 2e-2;

/// What a training of this part is.
struct Streamed<'a> {
    setting: &'a Setting,
    folder: &'a Path,
    layers: u64,
    batch: u64,
}

impl Streamed<'_> {
    fn model(&self) -> Llama {
        if self.setting.is_small {
            return Llama {
                layers: self.layers,
                ..Llama::TINY
            };
        }
        Llama::of_70b(self.layers)
    }

    /// Trains with plugins and further settings, and returns the row of results and the run's
    /// losses and norms.
    fn measured(&self, name: &str, plugins: &str, more: &[&str]) -> Result<(Json, [Vec<f64>; 2])> {
        let sequence = if self.setting.is_small { 8 } else { 2048 };
        let training = HostTraining {
            folder: self.folder,
            model: self.model(),
            compute: "bf16",
            steps: UNCOUNTED_STEPS + if self.setting.is_small { 1 } else { 3 },
            batch: self.batch,
            micro_batch: BATCH,
            sequence,
        };
        training.make_inputs()?;
        let mut words = vec!["--backend", "cuda", "--plugins", plugins];
        let settings = ["adapter.lora.rank=16", "model.recompute=layer"];
        words.extend(self.setting.set(&[&settings[..], more].concat()));
        let begin = Instant::now();
        let run = || training.run(self.setting, name, &words);
        let (run, peak_bytes) = watched(self.setting, run)?;
        let secs = numbers(&run, "step_secs")?;
        let counted = counted_secs(&secs)?;
        let most = |key: &str| -> Result<f64> { Ok(largest(numbers(&run, key)?)) };
        let row = json!({
            "training": name,
            "settings": more,
            "layers": self.layers,
            "tokens_per_step": self.batch * sequence,
            "step_secs": secs,
            "median_step_secs": counted,
            "tokens_per_sec": (self.batch * sequence) as f64 / counted,
            "peak_device_bytes": peak_bytes,
            "peak_host_bytes": most("peak_host_bytes")?,
            "fetched_bytes": most("fetched_bytes")?,
            "whole_secs": begin.elapsed().as_secs_f64(),
            "losses": numbers(&run, "loss")?,
        });
        Ok((row, steps(&run)?))
    }
}

/// Measures one rank, beside what computing alone takes, and what moving bytes alone takes.
///
/// # Errors
/// Where a run fails.
pub fn one_rank(setting: &Setting, rows: &mut Rows) -> Result<()> {
    let folder = setting.scratch("streamed-70b")?;
    let layers = if setting.is_small { 3 } else { 80 };
    let layers = setting.layers.unwrap_or(layers);
    let of = |layers| Streamed {
        setting,
        folder: &folder,
        layers,
        batch: BATCH,
    };
    let [up, _] = bus::bytes_per_sec(setting)?;
    let depths = if setting.is_small {
        [1, 2]
    } else {
        RESIDENT_LAYERS
    };
    let mut resident = [0.0; 2];
    for (secs, depth) in resident.iter_mut().zip(depths) {
        let name = format!("resident-{depth}");
        let (row, _) = of(depth).measured(&name, "nf4,lora,single", &[])?;
        *secs = row["median_step_secs"].as_f64().unwrap_or_default();
        rows.add(&row)?;
    }
    let [few, many] = depths.map(|depth| depth as f64);
    let of_layer = (resident[1] - resident[0]) / (many - few);
    let computing = resident[0] + (layers as f64 - few) * of_layer;
    let (mut row, _) = of(layers).measured("streamed", "nf4,lora,fsdp", &STREAMED)?;
    let number = |key: &str| row[key].as_f64().unwrap_or_default();
    let moving = number("fetched_bytes") / up;
    let ratio = number("median_step_secs") / computing.max(moving);
    for (key, value) in [
        ("computing_secs", computing),
        ("moving_secs", moving),
        ("bus_bytes_per_sec", up),
        ("of_the_longer", ratio),
    ] {
        row[key] = json!(value);
    }
    rows.add(&row)
}

/// Measures two ranks, which share the card and the weights in the host's memory, beside one that
/// has the rows of both.
///
/// # Errors
/// Where a run fails, or losses and norms of one rank and two differ by more than the bound.
pub fn two_ranks(setting: &Setting, rows: &mut Rows) -> Result<()> {
    let folder = setting.scratch("ranks-70b")?;
    let training = Streamed {
        setting,
        folder: &folder,
        layers: setting.layers.unwrap_or(2),
        batch: 2 * BATCH,
    };
    let (row, one) = training.measured("one-rank", "nf4,lora,fsdp", &STREAMED)?;
    rows.add(&row)?;
    let ranks = ["run.ranks=2", "run.devices=[\"cuda:0\",\"cuda:0\"]"];
    let settings = [&STREAMED[..], &ranks].concat();
    let (mut row, two) = training.measured("two-ranks", "nf4,lora,fsdp", &settings)?;
    let apart = largest_difference(&two, &one)?;
    row["relative_difference"] = json!(apart);
    rows.add(&row)?;
    ensure!(
        apart <= BOUND,
        "losses or norms of two ranks differ by {apart:e} of one's, expected at most {BOUND:e}"
    );
    Ok(())
}
