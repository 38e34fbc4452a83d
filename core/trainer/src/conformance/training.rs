//! A component under test in a run of ten steps: its losses are finite, fall, and are equal in two
//! runs.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use espalier_config::{Sources, resolve};
use espalier_conformance::{Checked, Fault, Suite, within};
use espalier_engine::observer::{Event, Observer, StepMetrics};
use espalier_system::stop::StopFlag;
use serde_json::{Value as Json, json};
use tempfile::TempDir;

use crate::{Error, train};

/// Steps of a run.
const STEPS: u64 = 10;
/// Rows, and tokens of each.
const ROWS: usize = 8;
const TOKENS: u64 = 24;
/// Tokens that a row repeats.
const PERIOD: u64 = 5;

/// A model, its rows, and the base config of every run.
pub struct KitModel {
    place: TempDir,
    sources: Sources,
    runs: Mutex<u32>,
}

/// The trained params.
#[derive(Clone, Copy)]
pub enum Start<'a> {
    /// An adapter on a tiny Llama with random weights in files.
    Adapter,
    /// All weights of the model of this `config.json`, with random initial values.
    Family(&'a Json),
}

/// The `config.json` of a Llama small enough for ten fast steps.
pub fn tiny_llama() -> Json {
    json!({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
        "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 64,
        "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
        "tie_word_embeddings": false, "initializer_range": 0.1, "dtype": "float32",
        "bos_token_id": 0, "eos_token_id": 1
    })
}

impl KitModel {
    /// A directory for runs under `sources`, which set the plugin folders and options.
    ///
    /// # Errors
    /// A temporary directory that cannot be written.
    pub fn new(sources: &Sources) -> Checked<Self> {
        let place = tempfile::tempdir().map_err(|error| error.to_string())?;
        Ok(KitModel {
            place,
            sources: sources.clone(),
            runs: Mutex::new(0),
        })
    }

    /// Trains with `keys`, assignments such as `plugins=["nf4"]`, and returns the steps.
    ///
    /// # Errors
    /// Errors of the run.
    pub fn train(&self, start: Start<'_>, keys: &[String]) -> Checked<Vec<StepMetrics>> {
        let (model, init, vocab) = match start {
            Start::Adapter => (self.base()?, "checkpoint", 64),
            Start::Family(config) => {
                let vocab = config["vocab_size"].as_u64().unwrap_or(PERIOD);
                (self.described("family", config)?, "random", vocab)
            }
        };
        let mut all = vec![
            format!("model.init={init:?}"),
            format!("data.files=[{:?}]", self.rows(vocab)?),
            format!("run.max_steps={STEPS}"),
            "run.epochs=100".to_owned(),
            "data.batch_size=4".to_owned(),
            "data.micro_batch=2".to_owned(),
            "data.max_seq_len=32".to_owned(),
            "optim.learning_rate=0.02".to_owned(),
        ];
        all.extend_from_slice(keys);
        self.run(&model, &all)
    }

    /// The tiny Llama with random weights, written by a run without steps.
    fn base(&self) -> Checked<PathBuf> {
        let out = self.place.path().join("base");
        let model = out.join("model");
        if !model.is_dir() {
            let described = self.described("llama", &tiny_llama())?;
            let keys = [
                "model.init=\"random\"".to_owned(),
                format!("data.files=[{:?}]", self.rows(64)?),
                "run.max_steps=0".to_owned(),
                "plugins=[]".to_owned(),
                format!("run.out={out:?}"),
            ];
            self.run(&described, &keys)?;
        }
        Ok(model)
    }

    /// A directory with only `config`.
    fn described(&self, name: &str, config: &Json) -> Checked<PathBuf> {
        let directory = self.place.path().join(name);
        fs::create_dir_all(&directory).map_err(|error| error.to_string())?;
        write(&directory.join("config.json"), &config.to_string())?;
        Ok(directory)
    }

    /// Rows that repeat a few tokens, each starting at another of them: the next token is a
    /// function of the present one.
    fn rows(&self, vocab: u64) -> Checked<PathBuf> {
        let path = self.place.path().join(format!("rows-{vocab}.jsonl"));
        let token = |place: u64| 3 * (place % PERIOD) % vocab;
        let row = |first: usize| {
            let tokens: Vec<u64> = (0..TOKENS).map(|at| token(first as u64 + at)).collect();
            json!({ "input_ids": tokens }).to_string() + "\n"
        };
        write(&path, &(0..ROWS).map(row).collect::<String>())?;
        Ok(path)
    }

    fn run(&self, model: &Path, keys: &[String]) -> Checked<Vec<StepMetrics>> {
        let number = {
            let mut runs = self.runs.lock().expect("nothing panics while it is held");
            *runs += 1;
            *runs
        };
        let out = self.place.path().join(format!("run-{number}"));
        let mut sources = self.sources.clone();
        sources = sources
            .set(format!("model.path={model:?}"))
            .set("model.compute=\"f32\"")
            .set("model.recompute=\"none\"")
            .set(format!("run.out={out:?}"));
        for key in keys {
            sources = sources.set(key);
        }
        let resolved = resolve(&sources).map_err(|error| error.to_string())?;
        let steps = Steps::default();
        train::run(&resolved, &steps, &StopFlag::new()).map_err(|error| words(&error))?;
        Ok(steps
            .0
            .into_inner()
            .expect("nothing panics while it is held"))
    }
}

/// An error and its causes in one line.
fn words(error: &Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        let more = cause.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        source = cause.source();
    }
    text
}

fn write(path: &Path, text: &str) -> Checked {
    fs::write(path, text).map_err(|error| Fault::Failed(format!("{}: {error}", path.display())))
}

/// Keeps the steps of a run.
#[derive(Default)]
struct Steps(Mutex<Vec<StepMetrics>>);

impl Observer for Steps {
    fn observe(&self, event: &Event<'_>) {
        if let Event::StepFinished(step) = event {
            let mut steps = self.0.lock().expect("nothing panics while it is held");
            steps.push((*step).clone());
        }
    }
}

/// Runs the checks of a run with `keys`. `fall` is the highest ratio of the last loss to the first.
pub fn check(
    opened_model: &Checked<KitModel>,
    start: Start<'_>,
    keys: &[String],
    fall: f64,
    suite: &mut Suite,
) -> Option<Vec<StepMetrics>> {
    let mut trained = None;
    suite.check(
        "train.learns",
        "ten steps of training on a tiny model end in a finite loss, well below the first",
        || {
            let opened_model = opened_model.as_ref().map_err(Clone::clone)?;
            let steps = opened_model.train(start, keys)?;
            let done = learned(&steps, fall);
            trained = Some(steps);
            done
        },
    );
    suite.check(
        "train.deterministic",
        "the same ten steps on another number of threads give the same losses and gradients, bit for bit",
        || {
            let opened_model = opened_model.as_ref().map_err(Clone::clone)?;
            let Some(first) = &trained else {
                return Err(Fault::Skipped("the first run failed".to_owned()));
            };
            let mut keys = keys.to_vec();
            keys.push("run.threads=3".to_owned());
            same(&opened_model.train(start, &keys)?, first)
        },
    );
    trained
}

fn learned(steps: &[StepMetrics], fall: f64) -> Checked {
    let losses: Vec<f64> = steps.iter().map(|step| step.loss).collect();
    let (Some(first), Some(last)) = (losses.first(), losses.last()) else {
        return Err(Fault::Failed("the run had no steps".to_owned()));
    };
    let finite = losses.iter().all(|loss| loss.is_finite());
    if finite && *last < fall * first {
        return Ok(());
    }
    let shown: Vec<String> = losses.iter().map(|loss| format!("{loss:.3}")).collect();
    Err(Fault::Failed(format!(
        "expected the last loss below {:.3}, found {}",
        fall * first,
        shown.join(" ")
    )))
}

/// Fails where two runs differ in a bit of a loss or a gradient's norm.
pub fn same(found: &[StepMetrics], expected: &[StepMetrics]) -> Checked {
    if found.len() != expected.len() {
        let (found, expected) = (found.len(), expected.len());
        return Err(Fault::Failed(format!(
            "expected {expected} steps, found {found}"
        )));
    }
    for (found, expected) in found.iter().zip(expected) {
        let numbers = |step: &StepMetrics| [step.loss, step.grad_norm];
        if numbers(found).map(f64::to_bits) != numbers(expected).map(f64::to_bits) {
            return Err(Fault::Failed(format!(
                "step {}: expected loss {} and gradient {}, found {} and {}",
                found.step, expected.loss, expected.grad_norm, found.loss, found.grad_norm
            )));
        }
    }
    Ok(())
}

/// Fails where losses of two runs differ by more than `share` of the expected.
pub fn close(found: &[StepMetrics], expected: &[StepMetrics], share: f64) -> Checked {
    let apart = |(found, expected): &(&StepMetrics, &StepMetrics)| {
        let difference = (found.loss - expected.loss).abs();
        !within(difference, share * expected.loss.abs())
    };
    match found.iter().zip(expected).find(apart) {
        None if found.len() == expected.len() => Ok(()),
        None => Err(Fault::Failed(
            "the runs have other numbers of steps".to_owned(),
        )),
        Some((found, expected)) => Err(Fault::Failed(format!(
            "step {}: expected loss {}, found {}",
            found.step, expected.loss, found.loss
        ))),
    }
}
