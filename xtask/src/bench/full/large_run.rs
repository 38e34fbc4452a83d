//! A shape -> a run of a few steps, watched, and its plan.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::page::{Measured, PlannedBytes};
use crate::bench::random_model::Shape;
use crate::metrics;
use crate::peers::speed::{Watched, run_until, run_watched};

/// Tokens of a row, one a step.
const TOKENS: u64 = 64;
/// Rows: more than the steps of any run.
const ROWS: u64 = 8;
/// Steps of the run that is resumed, and the step of its checkpoint.
const STEPS: usize = 3;
const SAVED: usize = 2;

/// A shape and its training.
pub struct LargeRun {
    /// The model that has this shape.
    pub name: &'static str,
    /// The shape.
    pub shape: Shape,
    /// The optimizer.
    pub optimizer: &'static str,
    /// The end of the run.
    pub until: Until,
}

/// The end of a run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// It is stopped after these steps, before it writes any weight.
    Steps(usize),
    /// It ends after these steps, with a checkpoint after each, and writes the model.
    Written(usize),
    /// It is stopped after a checkpoint, and resumed to its end, where it writes a checkpoint and
    /// the model.
    Resumed,
}

impl LargeRun {
    /// Trains, and measures each process.
    ///
    /// # Errors
    /// Where the host fails.
    pub fn measure(&self, host: &Path, folder: &Path) -> Result<Vec<Measured>> {
        self.shape.make_inputs(folder, ROWS, TOKENS)?;
        let files = Files {
            host,
            folder,
            out: folder.join("run"),
        };
        let plan = self.plan(&files)?;
        let measured = match self.until {
            Until::Steps(steps) => {
                let enough = || metrics::steps(&files.out) >= steps;
                let log = folder.join("steps");
                let watched = run_until(&mut self.train(&files, ROWS as usize), &log, enough)?;
                vec![self.measured(format!("{steps} steps"), plan, &watched)]
            }
            Until::Written(steps) => {
                let mut train = self.train(&files, steps);
                train.args(["--set", "run.save_every=1", "--set", "run.keep_last=1"]);
                let watched = run_watched(&mut train, &folder.join("written"), |_| ())?;
                let what = format!("{steps} steps, each with a checkpoint, and the model written");
                vec![self.measured(what, plan, &watched)]
            }
            Until::Resumed => self.resumed(&files, plan)?,
        };
        // Checkpoints of such models fill a disk.
        fs::remove_dir_all(&files.out)?;
        Ok(measured)
    }

    fn resumed(&self, files: &Files<'_>, plan: PlannedBytes) -> Result<Vec<Measured>> {
        let train = || {
            let mut train = self.train(files, STEPS);
            train.args(["--set", &format!("run.save_every={SAVED}")]);
            train.args(["--set", "run.keep_last=1"]);
            train
        };
        let checkpoint = files.out.join(format!("checkpoints/step-{SAVED}"));
        let enough = || checkpoint.is_dir();
        let first = run_until(&mut train(), &files.folder.join("first"), enough)?;
        let second = run_watched(
            train().arg("--resume"),
            &files.folder.join("second"),
            |_| (),
        )?;
        ensure!(
            metrics::steps(&files.out) == STEPS,
            "the resumed run has {} steps, expected {STEPS}",
            metrics::steps(&files.out)
        );
        Ok(vec![
            self.measured(format!("{SAVED} steps and a checkpoint"), plan, &first),
            self.measured(
                "resumed from it, a step, and the model written".to_owned(),
                plan,
                &second,
            ),
        ])
    }

    fn measured(&self, what: String, plan: PlannedBytes, watched: &Watched) -> Measured {
        let measured = Measured {
            name: self.name,
            optimizer: self.optimizer,
            what,
            plan,
            peak_bytes: watched.own_peak_bytes(),
        };
        println!(
            "{}, {}, {}: {:.3} GB, planned {:.3} GB",
            self.name,
            self.optimizer,
            measured.what,
            measured.peak_bytes as f64 / 1e9,
            plan.peak as f64 / 1e9
        );
        measured
    }

    fn train(&self, files: &Files<'_>, steps: usize) -> Command {
        let mut train = files.command("train", self.optimizer);
        train
            .args(["--quiet", "--set", &format!("run.max_steps={steps}")])
            .arg("--out")
            .arg(&files.out);
        train
    }

    fn plan(&self, files: &Files<'_>) -> Result<PlannedBytes> {
        let output = files.command("plan", self.optimizer).arg("--json").output();
        let output = output.context("cannot run the host")?;
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "host plan failed: {error}");
        let plan: Value = serde_json::from_slice(&output.stdout)?;
        let bytes = |pointer: &str| {
            let found = plan.pointer(pointer).and_then(Value::as_u64);
            found.with_context(|| format!("the plan has no number {pointer}"))
        };
        let values = ["saved_activations", "arena", "logits", "workspace"]
            .map(|category| bytes(&format!("/memory/{category}")));
        Ok(PlannedBytes {
            params: bytes("/num_params")?,
            peak: bytes("/peak_bytes")?,
            weights: bytes("/memory/trainable")?,
            activations: values.into_iter().sum::<Result<u64>>()?,
        })
    }
}

/// The files of a run.
struct Files<'a> {
    host: &'a Path,
    folder: &'a Path,
    out: PathBuf,
}

impl Files<'_> {
    /// A command of the host on this model and its rows, with updates in the backward pass.
    fn command(&self, command: &str, optimizer: &str) -> Command {
        let mut host = Command::new(self.host);
        host.arg(command)
            .arg("--model")
            .arg(self.folder.join("model"))
            .arg("--data")
            .arg(self.folder.join("rows.jsonl"));
        for setting in super::page::SETTINGS {
            host.args(["--set", setting]);
        }
        host.args(["--set", &format!("optim.name={optimizer}")]);
        host
    }
}
