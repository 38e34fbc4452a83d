//! A comparison's output directory -> its records, and a note for each unreadable file.

use std::collections::BTreeMap;
use std::path::Path;

use espalier_report::Error;
use espalier_report::record::Record;
use espalier_report::run_metrics::RunMetrics;
use espalier_system::failure::UsageError;
use espalier_system::files::{COMPARISON, FileKind, read_regular, read_regular_text};
use espalier_trainer::train::{HeldOut, held_out_file};
use serde::de::DeserializeOwned;

use crate::record::{self, Arm, Base, Comparison};

/// All records of a comparison.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// The comparison.
    pub comparison: Comparison,
    /// The arms, in the comparison's order.
    pub arms: Vec<ArmFindings>,
    /// The step after which arms are compared; `None` without a held-out loss after training.
    pub step: Option<u64>,
    /// Steps of a whole run.
    pub planned: Option<u64>,
    /// Files that could not be read.
    pub notes: Vec<String>,
}

/// An arm, its base and its runs.
#[derive(Clone, Debug, Default)]
pub struct ArmFindings {
    /// The arm.
    pub arm: Arm,
    /// Its base before training, where it was measured.
    pub base: Option<Base>,
    /// Started runs, in the order of the comparison's seeds.
    pub runs: Vec<RunFindings>,
}

/// A run of an arm.
#[derive(Clone, Debug, Default)]
pub struct RunFindings {
    /// Its seed.
    pub seed: u64,
    /// Its metrics.
    pub metrics: RunMetrics,
    /// Its `run.json`.
    pub record: Record,
    /// Each held-out document's loss, by completed steps.
    pub held_out: BTreeMap<u64, HeldOut>,
}

impl Findings {
    /// Reads the finished or active comparison in `out`.
    ///
    /// # Errors
    /// [`Error::Usage`] where `out` holds no comparison; a file error where a file cannot be read.
    pub fn read(out: &Path) -> Result<Self, Error> {
        let path = out.join(COMPARISON);
        let refuse = |why: String| {
            Error::Usage(UsageError {
                message: format!("{}: {why}", path.display()),
                next_step: "name the output directory of a comparison (--out of `host compare`)"
                    .into(),
            })
        };
        let text = read_regular_text(&path, FileKind::Record)
            .map_err(|error| refuse(format!("cannot be read: {error}")))?;
        let comparison: Comparison = serde_json::from_str(&text)
            .map_err(|error| refuse(format!("is no record of a comparison: {error}")))?;
        let mut notes = Vec::new();
        let arms = comparison.arms.iter();
        let arms = arms.map(|arm| ArmFindings::read(out, arm, &comparison.seeds, &mut notes));
        let arms: Vec<ArmFindings> = arms.collect::<Result<_, _>>()?;
        let runs = || arms.iter().flat_map(|arm| &arm.runs);
        let planned = runs().filter_map(|run| run.record.data.total_steps).max();
        Ok(Findings {
            step: compared_step(&arms, planned),
            planned,
            comparison,
            arms,
            notes,
        })
    }

    /// The arm whose dense base is the baseline.
    pub fn dense_baseline(&self) -> Option<usize> {
        let name = self.comparison.dense_baseline.as_deref()?;
        self.arms.iter().position(|arm| arm.arm.name == name)
    }
}

/// The last step of a completed run; else the last one that two arms have reached under the same
/// seed, else of any run.
fn compared_step(arms: &[ArmFindings], planned: Option<u64>) -> Option<u64> {
    let mut reached: BTreeMap<u64, BTreeMap<u64, usize>> = BTreeMap::new();
    for run in arms.iter().flat_map(|arm| &arm.runs) {
        for step in run.held_out.keys().filter(|step| **step > 0) {
            *reached
                .entry(*step)
                .or_default()
                .entry(run.seed)
                .or_default() += 1;
        }
    }
    let whole = planned.filter(|planned| reached.contains_key(planned));
    let shared = reached
        .iter()
        .rev()
        .find(|(_, seeds)| seeds.values().any(|arms| *arms > 1));
    let shared = shared.map(|(step, _)| *step);
    whole.or(shared).or(reached.keys().next_back().copied())
}

impl ArmFindings {
    fn read(out: &Path, arm: &Arm, seeds: &[u64], notes: &mut Vec<String>) -> Result<Self, Error> {
        let base = read_if_whole(&record::base_file(out, &arm.name), notes);
        let runs = seeds.iter().map(|seed| {
            let directory = record::run_directory(out, &arm.name, *seed);
            RunFindings::read(&directory, *seed, notes)
        });
        Ok(ArmFindings {
            base,
            runs: runs
                .filter_map(Result::transpose)
                .collect::<Result<_, _>>()?,
            arm: arm.clone(),
        })
    }

    /// Held-out results of the runs without a failure after `step` steps, by seed.
    pub fn held_out(&self, step: u64) -> Vec<(u64, &HeldOut)> {
        let failed = |seed: u64| {
            let mut failures = self.arm.failures.iter();
            failures.any(|failure| failure.seed.is_none_or(|failed| failed == seed))
        };
        let runs = self.runs.iter().filter(|run| !failed(run.seed));
        runs.filter_map(|run| Some((run.seed, run.held_out.get(&step)?)))
            .collect()
    }

    /// The held-out result before training: of the base, else of a run before its first step.
    pub fn before(&self) -> Option<&HeldOut> {
        let base = self.base.as_ref().and_then(|base| base.held_out.as_ref());
        base.or_else(|| self.runs.iter().find_map(|run| run.held_out.get(&0)))
    }
}

impl RunFindings {
    /// The run in `directory`; `None` where none has started there.
    fn read(directory: &Path, seed: u64, notes: &mut Vec<String>) -> Result<Option<Self>, Error> {
        let Some(record) = read_if_whole(&directory.join("run.json"), notes) else {
            return Ok(None);
        };
        let mut held_out = BTreeMap::new();
        for step in held_out_steps(directory) {
            let file = held_out_file(directory, step);
            match read_if_whole(&file, notes) {
                Some(found) if is_finite(&found) => {
                    held_out.insert(step, found);
                }
                Some(_) => notes.push(left_out(&file, "a loss in it is not a number")),
                None => (),
            }
        }
        Ok(Some(RunFindings {
            seed,
            metrics: RunMetrics::read(&directory.join("metrics.jsonl"))?,
            record,
            held_out,
        }))
    }
}

/// Whether the loss of every document with trained tokens is finite.
pub(super) fn is_finite(found: &HeldOut) -> bool {
    let mut bearing = found
        .documents
        .iter()
        .filter(|document| document.trained > 0);
    bearing.all(|document| document.loss.is_finite())
}

/// The steps of the files `held_out/step-N.json` of a run.
fn held_out_steps(run: &Path) -> Vec<u64> {
    let Some(Ok(entries)) = held_out_file(run, 0).parent().map(std::fs::read_dir) else {
        return Vec::new();
    };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let steps = names.filter_map(|name| {
        let number = name.strip_prefix("step-")?.strip_suffix(".json")?;
        number.parse().ok()
    });
    let mut steps: Vec<u64> = steps.collect();
    steps.sort_unstable();
    steps
}

/// The content of `path`; `None` where it is missing, also with a note where it is invalid.
fn read_if_whole<T: DeserializeOwned>(path: &Path, notes: &mut Vec<String>) -> Option<T> {
    let problem = match read_regular(path, FileKind::Measurements) {
        Ok(bytes) => match serde_json::from_slice(&bytes) {
            Ok(value) => return Some(value),
            Err(error) => error.to_string(),
        },
        Err(error) if error.is_not_found() => return None,
        Err(error) => error.to_string(),
    };
    notes.push(left_out(path, &problem));
    None
}

fn left_out(path: &Path, problem: &str) -> String {
    format!("{} is left out: {problem}", path.display())
}
