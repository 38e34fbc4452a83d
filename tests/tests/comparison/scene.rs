//! Arms with known differences -> the files of their comparison.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use espalier_compare::record::{
    self, Arm, Base, Comparison, Divergence, DocumentDivergence, WeightError,
};
use espalier_engine::document_loss::DocumentLoss;
use espalier_interface::random::{Purpose, key, normal, philox};
use espalier_system::files::COMPARISON;
use espalier_trainer::train::{HeldOut, held_out_file};
use serde::Serialize;
use serde_json::{Map, json};

/// Steps of a run, and between two evaluations.
pub const STEPS: u64 = 60;
const EVAL_EVERY: u64 = 15;
const LAYERS: u64 = 12;
const KINDS: [&str; 7] = [
    "q_proj",
    "k_proj",
    "v_proj",
    "o_proj",
    "gate_proj",
    "up_proj",
    "down_proj",
];
const ELEMENTS: u64 = 1 << 20;

/// The planned result of an arm.
#[derive(Clone)]
pub struct Sample {
    /// Its name.
    pub name: &'static str,
    /// Bits of a packed weight; 0 of a dense arm.
    pub bits: f64,
    /// Its held-out loss above the dense arm's, before and after training.
    pub excess: [f64; 2],
}

/// The arms of most tests: one as good as dense, one slightly worse, one much worse.
pub const SAMPLES: [Sample; 4] = [
    Sample {
        name: "dense",
        bits: 0.0,
        excess: [0.0, 0.0],
    },
    Sample {
        name: "nf4",
        bits: 4.127,
        excess: [0.004, 0.0],
    },
    Sample {
        name: "hqq-3",
        bits: 3.5,
        excess: [0.09, 0.03],
    },
    Sample {
        name: "hqq-2",
        bits: 2.5,
        excess: [0.9, 0.3],
    },
];

/// A comparison and its noise, nats a token.
pub struct Scene {
    /// Its arms.
    pub samples: Vec<Sample>,
    /// Its seeds.
    pub seeds: Vec<u64>,
    /// Held-out documents.
    pub documents: u64,
    /// Standard deviation over seeds, the same for all arms of a seed.
    pub of_seeds: f64,
    /// Standard deviation over seeds, of each arm by itself.
    pub of_runs: f64,
    /// Whether nothing is trained.
    pub eval_only: bool,
}

impl Default for Scene {
    fn default() -> Self {
        Scene {
            samples: SAMPLES.to_vec(),
            seeds: vec![42, 43, 44],
            documents: 40,
            of_seeds: 0.02,
            of_runs: 0.003,
            eval_only: false,
        }
    }
}

/// A normal number that depends on its purpose.
fn noise(what: [u64; 4]) -> f64 {
    let words = philox(
        key(what[0], Purpose::SYNTHETIC, 0),
        [what[1], what[2], what[3], 7].map(|word| word as u32),
    );
    f64::from(normal([words[0], words[1]])[0])
}

impl Scene {
    /// Writes the comparison into `out`.
    pub fn write(&self, out: &Path) {
        let arm = |sample: &Sample| Arm {
            name: sample.name.to_owned(),
            changes: self.changes(sample),
            command: format!(
                "host train --plugins {},lora --model models/llama --data rows.jsonl",
                sample.name
            ),
            ..Arm::default()
        };
        let comparison = Comparison {
            espalier: "0.1.0".to_owned(),
            config_version: 2,
            arms: self.samples.iter().map(arm).collect(),
            dense_baseline: self
                .samples
                .iter()
                .find(|sample| sample.bits == 0.0)
                .map(|sample| sample.name.to_owned()),
            seeds: self.seeds.clone(),
            schedule: "interleaved".to_owned(),
            eval_only: self.eval_only,
        };
        fs::create_dir_all(out).expect("created");
        save(&out.join(COMPARISON), &comparison);
        for (place, sample) in self.samples.iter().enumerate() {
            fs::create_dir_all(record::arm_directory(out, sample.name)).expect("created");
            save(&record::base_file(out, sample.name), &self.base(sample));
            for seed in self.seeds.iter().filter(|_| !self.eval_only) {
                self.write_run(out, place, *seed);
            }
        }
    }

    fn changes(&self, sample: &Sample) -> Map<String, serde_json::Value> {
        let changes = match sample.name.strip_prefix("hqq-") {
            Some(bits) => {
                json!({"plugins": ["hqq"], "quantizer": {"hqq": {"bits": bits.parse::<u64>().unwrap()}}})
            }
            None if sample.bits > 0.0 => json!({"plugins": [sample.name]}),
            None => json!({}),
        };
        changes.as_object().expect("an object").clone()
    }

    fn base(&self, sample: &Sample) -> Base {
        let bits = if sample.bits > 0.0 { sample.bits } else { 16.0 };
        let error = 0.9 * (-2.0 * 2f64.ln() * (bits - 0.3)).exp();
        let names = (0..LAYERS).flat_map(|layer| KINDS.map(|kind| (layer, kind)));
        let weight = |(layer, kind): (u64, &str)| {
            let scale =
                (0.25 * noise([layer, kind.len() as u64, 3, kind.as_bytes()[0].into()])).exp();
            let norm = ELEMENTS as f64 * 4e-4;
            WeightError {
                name: format!("model.layers.{layer}.{kind}.weight"),
                layer: Some(layer),
                kind: kind.to_owned(),
                quantizer: sample.name.to_owned(),
                elements: ELEMENTS,
                bytes: (ELEMENTS as f64 * bits / 8.0) as u64,
                squared_error: norm * error * scale * (1.0 + 0.5 * (-(layer as f64)).exp()),
                squared_norm: norm,
                largest_error: 0.01,
            }
        };
        let packed = sample.bits > 0.0;
        let document = |sample: &Sample, index: u64| {
            let own = (0.4 * noise([index, 8, 0, 0])).exp();
            DocumentDivergence {
                sum: 100.0 * sample.excess[0] * 0.8 * own,
                tokens: 100,
            }
        };
        let weights: Vec<WeightError> = names.filter(|_| packed).map(weight).collect();
        let (elements, bytes) = (
            LAYERS * 7 * ELEMENTS,
            (LAYERS * 7 * ELEMENTS) as f64 * bits / 8.0,
        );
        let divergence = Divergence {
            tokens: 4000,
            mean: sample.excess[0] * 0.8,
            median: sample.excess[0] * 0.3,
            p99: sample.excess[0] * 6.0,
            largest: sample.excess[0] * 20.0,
            same_top: (-sample.excess[0]).exp(),
            documents: (0..self.documents)
                .map(|index| document(sample, index))
                .collect(),
        };
        Base {
            vocab: 32_000,
            packed_weights: weights.len() as u64 * ELEMENTS,
            packed_bytes: if packed { bytes as u64 } else { 0 },
            frozen_weights: elements + (16 << 20),
            frozen_bytes: bytes as u64 + (32 << 20),
            encoded: weights.len() as u64,
            encode_secs: if packed { 4.0 / bits } else { 0.0 },
            weights,
            divergence: packed.then_some(divergence),
            held_out: Some(self.held_out(self.place(sample), self.seeds[0], 0)),
        }
    }

    fn place(&self, sample: &Sample) -> usize {
        let mut samples = self.samples.iter();
        samples
            .position(|other| other.name == sample.name)
            .expect("one of them")
    }

    /// The expected mean loss of an arm after `step` steps.
    pub fn loss(&self, place: usize, step: u64) -> f64 {
        let learned = (-(step as f64) / 18.0).exp();
        let [before, after] = self.samples[place].excess;
        1.9 + 1.4 * learned + after + (before - after) * learned
    }

    /// Documents of other lengths and difficulties, the same for all arms.
    fn held_out(&self, place: usize, seed: u64, step: u64) -> HeldOut {
        let moved = (step as f64 / STEPS as f64).min(1.0);
        let run = place as u64;
        let shift =
            self.of_seeds * noise([seed, 1, 0, 0]) + self.of_runs * noise([seed, 2, run, 0]);
        let document = |index: u64| {
            let trained = (40.0 * (0.6 * noise([index, 3, 0, 0])).exp()).ceil();
            let own = 0.3 * noise([index, 4, 0, 0]) + 0.01 * noise([index, 5, run, 0]);
            let loss = self.loss(place, step) + own + moved * shift;
            DocumentLoss {
                loss: loss * trained,
                correct: (trained * (-loss / 1.6).exp()) as u64,
                trained: trained as u64,
            }
        };
        HeldOut {
            step,
            documents: (0..self.documents).map(document).collect(),
        }
    }

    fn write_run(&self, out: &Path, place: usize, seed: u64) {
        let sample = &self.samples[place];
        let run = record::run_directory(out, sample.name, seed);
        fs::create_dir_all(run.join("held_out")).expect("created");
        let bits = if sample.bits > 0.0 { sample.bits } else { 16.0 };
        let weights = (bits * 11e6) as u64 + (32 << 20);
        save(
            &run.join("run.json"),
            &json!({
                "espalier": "0.1.0",
                "config": {"run": {"seed": seed}, "optim": {"learning_rate": 2e-4}},
                "model": {"path": "models/llama", "num_params": 1000, "num_trained_params": 10},
                "data": {"files": [{"path": "rows.jsonl", "rows": 500, "sha256": "ab", "format": "text", "bytes": 4096}], "total_steps": STEPS},
                "memory": {"weights": weights, "trainable": 9_000_000, "gradients": 9_000_000, "optimizer": 18_000_000,
                           "arena": 60_000_000, "saved_activations": 40_000_000, "program": 12_000_000},
                "machine": {"device": "cpu", "memory_bytes": 8_u64 << 30, "threads": 2},
            }),
        );
        let mut metrics = String::new();
        for step in 0..=STEPS {
            if step > 0 {
                let loss = self.loss(place, step)
                    + 0.25 * noise([seed, 6, step, 0])
                    + 0.01 * noise([seed, 7, step, place as u64]);
                let line = json!({
                    "step": step, "loss": loss, "grad_norm": 0.5, "learning_rate": 2e-4, "trained_tokens": 100,
                    "tokens_per_sec": 1000.0 + 40.0 * place as f64, "step_secs": 0.25,
                    "peak_host_bytes": weights + 147_000_000, "peak_device_bytes": 0,
                });
                writeln!(metrics, "{line}").expect("written");
            }
            if step % EVAL_EVERY == 0 {
                let held_out = self.held_out(place, seed, step);
                let total = held_out.total();
                let line = json!({"step": step, "eval_loss": total.loss / total.trained as f64});
                writeln!(metrics, "{line}").expect("written");
                save(&held_out_file(&run, step), &held_out);
            }
        }
        fs::write(run.join("metrics.jsonl"), metrics).expect("written");
    }
}

/// Writes `value` as JSON.
pub fn save(path: &Path, value: &impl Serialize) {
    fs::write(path, serde_json::to_vec(value).expect("JSON")).expect("written");
}
