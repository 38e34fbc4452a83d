//! A case -> one timed `host train` on the inputs that the peers read.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::case::Case;
use super::inputs::Inputs;
use super::timed_run::{Side, TimedRun};
use super::{SpeedOptions, watched};
use crate::backends;
use crate::metrics;
use crate::workspace::Workspace;

/// Runs the host.
pub struct Host<'a> {
    workspace: &'a Workspace,
    program: PathBuf,
    /// The folder of the backend's plugin, where it is not `cpu`.
    plugins: Option<PathBuf>,
    inputs: &'a Inputs,
    options: SpeedOptions,
    threads: u64,
}

impl<'a> Host<'a> {
    /// The host, and its backend where that is not `cpu`, built in the workspace.
    ///
    /// # Errors
    /// Where a build fails or the number of cores is not known.
    pub fn new(
        workspace: &'a Workspace,
        options: &SpeedOptions,
        inputs: &'a Inputs,
    ) -> Result<Self> {
        let build = |library| backends::build_all(workspace, &[library]);
        Ok(Host {
            workspace,
            program: backends::host(workspace)?,
            plugins: options.backend.map(build).transpose()?,
            inputs,
            options: options.clone(),
            threads: options.threads()?,
        })
    }

    /// Trains once. The output directory is removed when its numbers are read.
    ///
    /// # Errors
    /// Where the host fails or its files lack a number.
    pub fn train(&self, case: Case, round: u64) -> Result<TimedRun> {
        let out = self.inputs.folder.join("run");
        if out.exists() {
            fs::remove_dir_all(&out).with_context(|| format!("cannot clear {}", out.display()))?;
        }
        let mut times = FileTimes::new(&out);
        let log = self
            .inputs
            .logs
            .join(format!("host-{case}-{round}").replace(' ', "-"));
        let watched = watched::run(&mut self.command(case, &out), &log, |now| times.look(now))?;
        let [begin, ready] = times.both()?;
        let run: Value = serde_json::from_str(&read(&out.join("run.json"))?)?;
        let timed = TimedRun {
            case,
            round,
            side: Side::Host,
            losses: metrics::numbers(&out, "loss")?,
            step_secs: metrics::numbers(&out, "step_secs")?,
            load_secs: ready - begin,
            start_secs: ready,
            peak_bytes: watched.peak_bytes,
            instruction_set: run["instruction_set"].as_str().map(str::to_owned),
        };
        fs::remove_dir_all(&out).with_context(|| format!("cannot clear {}", out.display()))?;
        timed.complete(self.options.steps)
    }

    fn command(&self, case: Case, out: &Path) -> Command {
        let mut command = match &self.plugins {
            Some(plugins) => backends::command(self.workspace, &self.program, plugins),
            None => Command::new(&self.program),
        };
        command
            .env_remove("GLIBC_TUNABLES")
            .args(["train", "--quiet", "--threads", &self.threads.to_string()])
            .arg("--model")
            .arg(self.inputs.folder.join("model"))
            .arg("--data")
            .arg(self.inputs.folder.join("rows.jsonl"))
            .arg("--out")
            .arg(out);
        if let Some(backend) = self.options.backend {
            command.args(["--backend", &backend.to_string()]);
        }
        if let Some(plugins) = case.method.plugins() {
            let adapter = self.inputs.folder.join("adapter");
            command
                .args(["--plugins", plugins])
                .arg("--adapter")
                .arg(adapter);
        }
        for (key, value) in self.settings(case) {
            command.arg("--set").arg(format!("{key}={value}"));
        }
        command
    }

    /// The settings that make the run the peer's: same order of rows, same optimizer.
    fn settings(&self, case: Case) -> Vec<(&'static str, String)> {
        let options = &self.options;
        let recompute = if options.recompute { "layer" } else { "none" };
        let mut settings = vec![
            ("run.max_steps", options.steps.to_string()),
            ("model.compute", case.dtype.to_string()),
            ("model.recompute", recompute.to_owned()),
            ("data.max_seq_len", options.sequence.to_string()),
            ("data.batch_size", options.batch.to_string()),
            ("data.micro_batch", options.batch.to_string()),
            ("data.shuffle", "false".to_owned()),
            (
                "optim.learning_rate",
                case.method.learning_rate().to_string(),
            ),
            ("optim.weight_decay", "0.0".to_owned()),
            ("optim.clip_norm", "0.0".to_owned()),
        ];
        settings.extend(
            case.method
                .quantizer_settings()
                .iter()
                .map(|&(key, value)| (key, value.to_owned())),
        );
        settings
    }
}

/// When the host's files appear: `log.txt` when its plan is made, `metrics.jsonl` before its first
/// step. Between them it measures the rate of its products, hashes the model's files and loads.
struct FileTimes {
    files: [PathBuf; 2],
    secs: [Option<f64>; 2],
}

impl FileTimes {
    fn new(out: &Path) -> Self {
        FileTimes {
            files: ["log.txt", "metrics.jsonl"].map(|name| out.join(name)),
            secs: [None; 2],
        }
    }

    fn look(&mut self, now: Duration) {
        // The later file first: both may appear between two looks.
        for (file, secs) in self.files.iter().zip(&mut self.secs).rev() {
            if secs.is_none() && file.exists() {
                *secs = Some(now.as_secs_f64());
            }
        }
    }

    fn both(&self) -> Result<[f64; 2]> {
        match self.secs {
            [Some(begin), Some(ready)] => Ok([begin, ready]),
            _ => bail!(
                "the host wrote no {} and {}",
                self.files[0].display(),
                self.files[1].display()
            ),
        }
    }
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}
