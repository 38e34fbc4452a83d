//! A case -> one timed training by the peers, in `tests/peers/speed_peer.py`.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use serde::Deserialize;

use super::case::{Case, Method};
use super::inputs::Inputs;
use super::timed_run::{Allocator, Side, TimedRun};
use super::{SpeedOptions, watched};
use crate::workspace::Workspace;

/// Keeps glibc from returning memory to the kernel and fetching it again in every step, which
/// costs the peers up to half of their speed.
pub const KEEP_MEMORY: &str = "glibc.malloc.mmap_threshold=4294967296:glibc.malloc.trim_threshold=17179869184:glibc.malloc.mmap_max=0";

/// Runs the peers.
pub struct Peer<'a> {
    script: PathBuf,
    inputs: &'a Inputs,
    options: SpeedOptions,
    threads: u64,
}

/// What the script prints.
#[derive(Deserialize)]
struct Printed {
    #[serde(default)]
    losses: Vec<f64>,
    #[serde(default)]
    step_secs: Vec<f64>,
    load_secs: f64,
    start_secs: f64,
    peak_bytes: u64,
}

impl<'a> Peer<'a> {
    /// The script of the workspace.
    ///
    /// # Errors
    /// Where the number of cores is not known.
    pub fn new(workspace: &Workspace, options: &SpeedOptions, inputs: &'a Inputs) -> Result<Self> {
        Ok(Peer {
            script: workspace.root.join("tests/peers/speed_peer.py"),
            inputs,
            options: options.clone(),
            threads: options.threads()?,
        })
    }

    /// Where the case is trained on what hqq encodes, encodes it once and returns the seconds of
    /// loading and encoding. They are kept beside the result, which every run then loads.
    ///
    /// # Errors
    /// Where the script fails.
    pub fn encode(&self, case: Case) -> Result<Option<f64>> {
        if case.method != Method::Hqq {
            return Ok(None);
        }
        let file = |end: &str| self.inputs.folder.join(format!("hqq-{}.{end}", case.dtype));
        let (encoded, kept) = (file("pt"), file("json"));
        if !encoded.exists() || !kept.exists() {
            println!("hqq encodes the model once, for {case}");
            let mut command = self.command(case, Allocator::Tuned);
            command.arg("--encode");
            let log = self.inputs.logs.join(format!("encode-hqq-{}", case.dtype));
            let output = watched::run(&mut command, &log, |_| ())?.output;
            fs::write(&kept, output).with_context(|| format!("cannot write {}", kept.display()))?;
        }
        let text =
            fs::read_to_string(&kept).with_context(|| format!("cannot read {}", kept.display()))?;
        let printed: Printed = serde_json::from_str(&text)
            .with_context(|| format!("{} is not the script's; delete it", kept.display()))?;
        Ok(Some(printed.load_secs))
    }

    /// Trains once.
    ///
    /// # Errors
    /// Where the script fails or its output lacks a number.
    pub fn train(&self, case: Case, round: u64, allocator: Allocator) -> Result<TimedRun> {
        let side = Side::Peer(allocator);
        let mut command = self.command(case, allocator);
        command
            .args(["--steps", &self.options.steps.to_string()])
            .args(["--batch", &self.options.batch.to_string()])
            .args(["--adapters", &self.options.peer_adapters.to_string()]);
        if self.options.recompute {
            command.arg("--recompute");
        }
        let name = format!("{side}-{case}-{round}").replace(' ', "-");
        let watched = watched::run(&mut command, &self.inputs.logs.join(name), |_| ())?;
        let printed: Printed =
            serde_json::from_str(&watched.output).context("speed_peer.py printed no JSON")?;
        let timed = TimedRun {
            case,
            round,
            side,
            losses: printed.losses,
            step_secs: printed.step_secs,
            load_secs: printed.load_secs,
            start_secs: printed.start_secs,
            peak_bytes: printed.peak_bytes.max(watched.peak_bytes),
            instruction_set: None,
        };
        timed.complete(self.options.steps)
    }

    fn command(&self, case: Case, allocator: Allocator) -> Command {
        let threads = self.threads.to_string();
        let mut command = Command::new(&self.options.python);
        command
            .arg(&self.script)
            .arg(&self.inputs.folder)
            .args(["--method", &case.method.to_string()])
            .args(["--dtype", &case.dtype.to_string()])
            .args(["--threads", &threads])
            .env("OMP_NUM_THREADS", &threads);
        watched::offline(&mut command);
        match allocator {
            Allocator::Installed => command.env_remove("GLIBC_TUNABLES"),
            Allocator::Tuned => command.env("GLIBC_TUNABLES", KEEP_MEMORY),
        };
        command
    }
}
