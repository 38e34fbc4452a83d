//! A loaded arm of a comparison, its rows, and the expected measurements from simple oracles.

mod notes;
mod oracle;

pub use notes::Notes;
pub use oracle::{assert_divergence, divergence, golden_predictions, off_weight_error, top};

use std::fs;
use std::path::{Path, PathBuf};

use espalier_compare::base::{self, Against, Loaded};
use espalier_compare::dense_baseline::DenseBaseline;
use espalier_compare::record::Base;
use espalier_compare::weights::WeightErrors;
use espalier_config::{ResolvedConfig, Sources, resolve};
use espalier_data::{BatchSchedule, MicroBatch};
use espalier_engine::document_loss::DocumentLoss;
use espalier_engine::executor::StepPosition;
use espalier_engine::observer::Unobserved;
use espalier_engine::team::Team;
use espalier_plan::plan::Purpose;
use espalier_registry::select::Components;
use espalier_system::stop::StopFlag;
use espalier_system::threads::HostServices;
use espalier_tests::{Golden, golden_path};
use espalier_trainer::session::Session;
use espalier_trainer::train::LoadedBase;
use espalier_trainer::{Error, weights};
use tempfile::TempDir;

use oracle::log_softmax;

const POSITION: StepPosition = StepPosition {
    seed: 42,
    step: 0,
    first: true,
    last: true,
};

/// A loaded arm of a comparison.
pub struct Arm {
    // Dropped before the backend whose device it is on.
    pub team: Team,
    _components: Components,
    pub rows: BatchSchedule,
    pub services: &'static HostServices,
    pub loaded: Loaded,
}

/// Rows of many lengths as a data file; one of them has untrained tokens.
pub fn rows() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("a place to write");
    let path = directory.path().join("rows.jsonl");
    let golden = Golden::open("llama/data.safetensors");
    let tokens = golden.rows("train_tokens").concat();
    let mut at = 0;
    let lines = [17, 32, 5, 48, 2, 29, 11, 40, 8].map(|length| {
        let row = &tokens[at..at + length];
        at += length;
        let labels = row.iter().enumerate().map(|(index, &token)| match length {
            29 if index % 3 == 0 => -100,
            _ => token,
        });
        let labels: Vec<i32> = labels.collect();
        format!(
            "{}\n",
            serde_json::json!({ "input_ids": row, "labels": labels })
        )
    });
    fs::write(&path, lines.concat()).expect("a place to write");
    (directory, path)
}

fn config(data: &Path, keys: &[(&str, &str)]) -> ResolvedConfig {
    let model = golden_path("llama/tiny-trained");
    let sources = Sources::default()
        .set(format!("model.path={model:?}"))
        .set(format!("data.files=[{data:?}]"))
        .set("data.batch_size=4")
        .set("data.pack_tokens=64")
        .set("data.shuffle=false")
        .set("model.compute=\"f32\"");
    let set = |sources: Sources, (key, value): &(&str, &str)| sources.set(format!("{key}={value}"));
    resolve(&keys.iter().fold(sources, set)).expect("a config")
}

/// Loads an arm without training, or with an untrained adapter.
pub fn arm(data: &Path, keys: &[(&str, &str)]) -> Arm {
    let resolved = config(data, keys);
    let purpose = if keys.iter().any(|(_, value)| value.contains("lora")) {
        Purpose::Train
    } else {
        Purpose::Evaluate
    };
    let session = Session::open_for(&resolved, purpose, &Unobserved, &StopFlag::new());
    let Session {
        directory,
        components,
        data,
        run,
        services,
        ..
    } = session.expect("a session");
    let errors = WeightErrors::new(&run.plan, services);
    let config = resolved.config();
    let loaded = weights::load_inspected(
        config,
        &directory,
        &components,
        run,
        &Unobserved,
        Some(&errors),
    );
    let (executor, report) = loaded.expect("a model");
    let data = data.expect("rows");
    let rows = BatchSchedule::evaluation(data.train.dataset(), &config.data);
    Arm {
        team: Team::new(vec![executor]),
        _components: components,
        rows: rows.expect("rows that fit"),
        services,
        loaded: Loaded {
            report,
            errors: errors.take_found(),
        },
    }
}

impl Arm {
    pub fn loaded_base(&self) -> LoadedBase<'_> {
        static STOP: std::sync::LazyLock<StopFlag> = std::sync::LazyLock::new(StopFlag::new);
        LoadedBase {
            team: &self.team,
            rows: &self.rows,
            seed: 42,
            services: self.services,
            observer: &Unobserved,
            stop: &STOP,
        }
    }

    pub fn try_base(&self, against: Against<'_>) -> Result<Base, Error> {
        base::measure(&self.loaded_base(), self.loaded.clone(), against)
    }

    pub fn base(&self, against: Against<'_>) -> Base {
        self.try_base(against).expect("a base")
    }

    /// The micro-batches of the held-out rows, in their order.
    pub fn micro_batches(&self) -> Vec<MicroBatch> {
        let steps =
            (0..self.rows.total_steps()).map(|index| self.rows.step(index).expect("a step"));
        steps.flat_map(|step| step.micro_batches).collect()
    }

    /// The loss of each document, with each in its own micro-batch.
    pub fn losses(&self) -> Vec<DocumentLoss> {
        let predictions = self.predictions();
        let mut next = predictions.iter();
        let loss = |micro: &MicroBatch| {
            let mut loss = DocumentLoss::default();
            for (predicted, label) in next.by_ref().take(micro.num_trained) {
                loss.loss -= predicted[*label];
                loss.correct += u64::from(top(predicted) == *label);
                loss.trained += 1;
            }
            loss
        };
        self.micro_batches().iter().map(loss).collect()
    }

    /// The log-probabilities of every trained token, and the target token.
    pub fn predictions(&self) -> Vec<(Vec<f64>, usize)> {
        let mut predictions = Vec::new();
        for micro in self.micro_batches() {
            let logits = self.team.first().logits(&micro, POSITION);
            let logits = logits.expect("logits");
            for (logits, &label) in logits.chunks_exact(512).zip(&micro.labels) {
                if label >= 0 {
                    predictions.push((log_softmax(logits), label as usize));
                }
            }
        }
        predictions
    }
}

/// The dense baseline measured from `dense`.
pub fn dense_baseline(dense: &Arm, most_bytes: u64) -> (TempDir, DenseBaseline, Base) {
    let directory = tempfile::tempdir().expect("a place to write");
    let mut dense_baseline = DenseBaseline::within(directory.path(), most_bytes);
    let base = dense.base(Against::Itself(&mut dense_baseline));
    (directory, dense_baseline, base)
}
