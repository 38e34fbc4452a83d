//! A run of a few steps with swaps requested after one of its steps, and the state that must be
//! equal bit for bit.
#![allow(dead_code)] // Each test takes what it needs.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use espalier_config::{ResolvedConfig, Sources, resolve};
use espalier_engine::observer::{Event, Observer};
use espalier_system::stop::StopFlag;
use espalier_tests::golden_path;
use espalier_trainer::checkpoint::ResumeFrom;
use espalier_trainer::error::Error;
use espalier_trainer::swap::{Mailbox, Outcome, SwapAnswer, SwapRequest};
use espalier_trainer::train::{self, RunSummary};
use serde_json::{Value as Json, json};
use tempfile::TempDir;

/// Steps of a run.
pub const STEPS: u64 = 8;

/// A folder with rows, and the keys of a run on them.
pub struct Job {
    pub folder: PathBuf,
    pub keys: Vec<String>,
    _temporary: Option<TempDir>,
}

/// Requests swaps after a run's first step.
pub struct Asking {
    pub mailbox: Mailbox,
    pub requests: Vec<SwapRequest>,
    pub notes: Mutex<Vec<String>>,
    pub stop: StopFlag,
    /// Step after which the run is stopped.
    pub stop_after: Option<u64>,
    /// A file that is replaced after a step: step, path, new content.
    pub replaced: Option<(u64, PathBuf, Vec<u8>)>,
}

/// The state that must be equal bit for bit, and the messages.
pub struct Outcomes {
    /// `step`, `loss`, `grad_norm` and so on of every step and evaluation.
    pub metrics: Vec<Json>,
    /// Files of the adapter, or of the model, and of the last checkpoint's state.
    pub state: Vec<Vec<u8>>,
    pub answers: Vec<SwapAnswer>,
    pub run: Json,
    /// The run's summary, if this process made the run.
    pub summary: Option<RunSummary>,
}

impl Observer for Asking {
    fn observe(&self, event: &Event<'_>) {
        match event {
            Event::StepFinished(step) => {
                if step.step == 1 {
                    for request in &self.requests {
                        self.mailbox.ask(request).expect("room for a request");
                    }
                }
                if let Some((after, path, content)) = &self.replaced
                    && *after == step.step
                {
                    espalier_samples::put(path, content);
                }
                if self.stop_after == Some(step.step) {
                    self.stop.request(15);
                }
            }
            Event::Note(text) => self.notes.lock().expect("ours").push((*text).to_owned()),
            _ => {}
        }
    }
}

impl Job {
    pub fn new(keys: &[&str]) -> Self {
        let temporary = tempfile::tempdir().expect("a folder");
        let folder = temporary.path().to_owned();
        let row =
            |index: u32| json!({"input_ids": (5 + 9 * index..11 + 9 * index).collect::<Vec<_>>()});
        let rows: String = (0..8).map(|index| format!("{}\n", row(index))).collect();
        fs::write(folder.join("rows.jsonl"), rows).expect("written");
        let keys = keys.iter().map(|key| (*key).to_owned()).collect();
        Job {
            folder,
            keys,
            _temporary: Some(temporary),
        }
    }

    /// The job in an existing folder.
    pub fn there(folder: PathBuf, keys: Vec<String>) -> Self {
        Job {
            folder,
            keys,
            _temporary: None,
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub fn config(&self, out: &str) -> ResolvedConfig {
        let model = golden_path("llama/tiny-trained");
        let [rows, out] = [self.path("rows.jsonl"), self.path(out)];
        let fixed = [
            format!("model.path={model:?}"),
            format!("run.out={out:?}"),
            format!("data.files=[{rows:?}]"),
            format!("run.max_steps={STEPS}"),
            "run.epochs=100".to_owned(),
            "run.threads=2".to_owned(),
            "run.save_every=2".to_owned(),
            "run.keep_last=9".to_owned(),
            "run.eval_every=4".to_owned(),
            "data.eval_split=2".to_owned(),
            "data.batch_size=3".to_owned(),
            "model.compute=\"f32\"".to_owned(),
            "optim.learning_rate=1e-2".to_owned(),
            "adapter.lora.dropout=0.1".to_owned(),
        ];
        let sources = fixed.iter().chain(&self.keys);
        resolve(&sources.fold(Sources::default(), Sources::set)).expect("a config")
    }

    pub fn asking(&self, out: &str, requests: &[SwapRequest]) -> Asking {
        Asking {
            mailbox: Mailbox::of(&self.path(out)),
            requests: requests.to_vec(),
            notes: Mutex::default(),
            stop: StopFlag::new(),
            stop_after: None,
            replaced: None,
        }
    }

    /// Number of swaps in the outcomes of a run.
    pub fn swaps(outcomes: &Outcomes) -> usize {
        outcomes
            .summary
            .as_ref()
            .map_or(0, |summary| summary.swaps.len())
    }

    /// Trains with requests that are refused, each with its exit code and words, and requires the
    /// training of `plain`.
    pub fn refuses(&self, plain: &Outcomes, cases: Vec<(SwapRequest, u8, &str)>) -> Outcomes {
        let requests: Vec<SwapRequest> =
            cases.iter().map(|(request, ..)| request.clone()).collect();
        let refused = self.run("refused", &requests);
        refused.same_training(plain, "refused");
        for (answer, (request, code, words)) in refused.answers.iter().zip(cases) {
            let reason = answer.record.reason.as_deref().unwrap_or_default();
            assert_eq!(answer.record.outcome, Outcome::Refused, "{request:?}");
            assert!(reason.contains(words), "{request:?}: {reason}");
            assert_eq!(answer.exit_code, code, "{reason}");
            assert!(!answer.next_step.is_empty(), "{reason}");
        }
        refused
    }

    /// Trains in `out`, with swaps requested after its first step.
    pub fn run(&self, out: &str, requests: &[SwapRequest]) -> Outcomes {
        let asking = self.asking(out, requests);
        let trained = train::run(&self.config(out), &asking, &asking.stop);
        let summary = Some(trained.expect("a run"));
        Outcomes {
            summary,
            ..self.outcomes(out, requests.len())
        }
    }

    /// Resumes the run in `out` from the checkpoint after `step` steps.
    pub fn resume(&self, out: &str, step: u64) -> Result<Outcomes, Error> {
        let asking = self.asking(out, &[]);
        let from = ResumeFrom::Step(step);
        let summary = train::resume(&self.config(out), from, &asking, &asking.stop)?;
        Ok(Outcomes {
            summary: Some(summary),
            ..self.outcomes(out, 0)
        })
    }

    /// Trains `plugins` on `ranks` ranks with `keys`, whole and resumed from step 4, to the same
    /// bits; returns the whole run and its folder.
    pub fn resumed(
        &self,
        ranks: usize,
        plugins: &str,
        mut keys: Vec<String>,
    ) -> (Outcomes, PathBuf) {
        keys.extend([format!("plugins={plugins:?}"), format!("run.ranks={ranks}")]);
        let job = Job::there(self.folder.clone(), keys);
        let (whole, cut) = (format!("whole-{ranks}"), format!("cut-{ranks}"));
        let expected = job.run(&whole, &[]);
        job.unfinished(&whole, &cut);
        let found = job.resume(&cut, 4).expect("a checkpoint");
        found.same_training(&expected, plugins);
        (expected, job.path(&whole))
    }

    pub fn outcomes(&self, out: &str, requests: usize) -> Outcomes {
        let lines = fs::read_to_string(self.path(out).join("metrics.jsonl")).expect("metrics");
        let lines = lines
            .lines()
            .map(|line| serde_json::from_str::<Json>(line).expect("JSON"));
        let exact = |line: Json| {
            let keys = ["step", "loss", "grad_norm", "learning_rate", "eval_loss"];
            Json::from_iter(keys.map(|key| (key, line[key].clone())))
        };
        // An adapter, or a model that was trained whole.
        let exported = [
            "adapter/adapter_config.json",
            "adapter/adapter_model.safetensors",
            "model/config.json",
            "model/model.safetensors",
        ];
        let exported = exported.map(|name| self.path(out).join(name));
        let exported: Vec<PathBuf> = exported.into_iter().filter(|path| path.exists()).collect();
        assert_eq!(exported.len(), 2, "{exported:?}");
        // One of each kind for every rank.
        let checkpoint = self.path(out).join(format!("checkpoints/step-{STEPS}"));
        let entries = fs::read_dir(checkpoint).expect("a checkpoint");
        let mut tensors: Vec<PathBuf> = entries
            .map(|entry| entry.expect("an entry").path())
            .filter(|path| path.extension().is_some_and(|end| end == "safetensors"))
            .collect();
        tensors.sort();
        assert!(tensors.len() >= 2, "params and moments: {tensors:?}");
        let state = exported.iter().chain(&tensors);
        let state = state.map(|path| fs::read(path).expect("a file"));
        let mailbox = Mailbox::of(&self.path(out));
        let answer = |number| mailbox.answer(number).expect("whole").expect("an answer");
        let run = fs::read(self.path(out).join("run.json")).expect("a record");
        Outcomes {
            metrics: lines
                .filter(|line| line.get("swap").is_none())
                .map(exact)
                .collect(),
            state: state.collect(),
            answers: (1..=requests as u64).map(answer).collect(),
            run: serde_json::from_slice(&run).expect("JSON"),
            summary: None,
        }
    }

    /// A copy of a run as left by a process that died.
    pub fn unfinished(&self, from: &str, to: &str) {
        copy(&self.path(from), &self.path(to));
        fs::remove_dir_all(self.path(to).join("adapter")).expect("removed");
    }
}

impl Outcomes {
    pub fn same_training(&self, other: &Outcomes, case: &str) {
        assert_eq!(self.metrics, other.metrics, "{case}");
        assert!(self.state == other.state, "{case}: other params or moments");
    }

    pub fn losses(&self) -> Vec<f64> {
        let losses = self.metrics.iter().filter_map(|line| line["loss"].as_f64());
        losses.collect()
    }
}

pub fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("created");
    for entry in fs::read_dir(from).expect("a directory") {
        let (path, name) = entry
            .map(|one| (one.path(), one.file_name()))
            .expect("an entry");
        if path.is_dir() {
            copy(&path, &to.join(name))
        } else {
            fs::copy(&path, to.join(name)).expect("copied");
        }
    }
}

/// A request that is due before step `step`.
pub fn ask(assignment: &str, step: u64, set: &[&str]) -> SwapRequest {
    let set: Vec<String> = set.iter().map(|text| (*text).to_owned()).collect();
    SwapRequest {
        before_step: Some(step),
        asked_by: "a test".to_owned(),
        ..SwapRequest::new(assignment, &set).expect("a swap")
    }
}

/// A folder with the library of a sample plugin.
pub fn plugin_folder(job: &Job, package: &str) -> PathBuf {
    let folder = job.path(&format!("plugins-{package}"));
    fs::create_dir_all(&folder).expect("created");
    let library = espalier_samples::library(package);
    let name = library.file_name().expect("a file");
    fs::copy(&library, folder.join(name)).expect("copied");
    folder
}
