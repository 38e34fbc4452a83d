//! A session -> a trained adapter or model, with every step on record.

mod base_measure;
mod begin;
mod beginning;
mod finished;
mod held_out_log;
mod metrics;
mod peak;
mod ready;
mod run;
mod runner;
mod stopped;
mod swaps;

use std::path::PathBuf;

use espalier_config::ResolvedConfig;
use espalier_data::Counts;
use espalier_engine::observer::{EvalMetrics, Observer};
use espalier_interface::DType;
use espalier_plan::plan::WorldMemory;
use espalier_system::memory::Meter;
use espalier_system::stop::StopFlag;

use crate::Error;
use crate::checkpoint::ResumeFrom;
use crate::swap::SwapRecord;

pub use base_measure::{BaseMeasure, LoadedBase};
pub use held_out_log::{HeldOut, HeldOutLog, held_out_file};
pub use run::{Opened, Opening, Run};
pub use runner::Left;
pub use stopped::Stopped;

/// What a run came to.
#[derive(Clone, Debug, PartialEq)]
pub struct RunSummary {
    /// Steps that were done.
    pub steps: u64,
    /// Mean loss of the last step.
    pub last_loss: Option<f64>,
    /// Held-out loss before the first step.
    pub eval_before: Option<EvalMetrics>,
    /// Held-out loss after the last.
    pub eval_after: Option<EvalMetrics>,
    /// Whether the run was finished already, and nothing was done.
    pub finished_before: bool,
    /// Swaps of plugins that were made.
    pub swaps: Vec<SwapRecord>,
    /// What became of the rows that were to be trained on.
    pub counts: Counts,
    /// What this process held; unset where nothing was done.
    pub memory: Option<RunMemory>,
    /// What was written: `adapter/` or `model/`.
    pub saved: PathBuf,
}

/// What a process was planned to hold, and what it held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunMemory {
    /// As planned.
    pub planned: WorldMemory,
    /// Most bytes of host memory that the process held.
    pub held_bytes: u64,
}

impl RunSummary {
    fn finished_before(saved: PathBuf) -> Self {
        RunSummary {
            steps: 0,
            last_loss: None,
            eval_before: None,
            eval_after: None,
            finished_before: true,
            swaps: Vec::new(),
            counts: Counts::default(),
            memory: None,
            saved,
        }
    }
}

/// Trains as the config says, in a directory that holds no run yet.
///
/// # Errors
/// Whatever goes wrong, with its exit code; [`Error::Stopped`] after a signal, once a checkpoint is
/// saved.
pub fn run(
    resolved: &ResolvedConfig,
    observer: &dyn Observer,
    stop: &StopFlag,
) -> Result<RunSummary, Error> {
    start(resolved, None, observer, stop)
}

/// Goes on with the run in the output directory: what comes out is what [`run`] alone would have
/// given. Without a checkpoint it starts over; a finished run it leaves as it is.
///
/// # Errors
/// As [`run`]; [`Error::Resume`] for a checkpoint that is damaged, or that another run has saved.
pub fn resume(
    resolved: &ResolvedConfig,
    from: ResumeFrom,
    observer: &dyn Observer,
    stop: &StopFlag,
) -> Result<RunSummary, Error> {
    start(resolved, Some(from), observer, stop)
}

fn start(
    resolved: &ResolvedConfig,
    from: Option<ResumeFrom>,
    observer: &dyn Observer,
    stop: &StopFlag,
) -> Result<RunSummary, Error> {
    let opening = Opening {
        resolved,
        from,
        process_context: None,
        meter: Meter::whole_process(),
        observer,
        stop,
    };
    match Run::open(opening, None)? {
        Opened::Finished(summary) => Ok(*summary),
        Opened::Run(mut run) => {
            let trained = run.do_the_rest();
            run.end(trained)
        }
    }
}

/// The dtype in which a model's weights are written where nothing else says so: the one its config
/// names, f32 otherwise.
pub(crate) fn stored_dtype(config: &serde_json::Value) -> DType {
    let named = config.get("dtype").or_else(|| config.get("torch_dtype"));
    match named.and_then(serde_json::Value::as_str) {
        Some("bfloat16") => DType::BF16,
        Some("float16") => DType::F16,
        _ => DType::F32,
    }
}
