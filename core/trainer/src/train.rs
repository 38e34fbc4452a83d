//! A session -> a trained adapter or model, with metrics of every step.

mod base_measure;
mod begin;
mod beginning;
mod best;
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

/// The result of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct RunSummary {
    /// Completed steps.
    pub steps: u64,
    /// Mean loss of the last step.
    pub last_loss: Option<f64>,
    /// Held-out loss before the first step.
    pub eval_before: Option<EvalMetrics>,
    /// Held-out loss after the last.
    pub eval_after: Option<EvalMetrics>,
    /// Whether the run was finished already, so that no step was run.
    pub finished_before: bool,
    /// Completed swaps of plugins.
    pub swaps: Vec<SwapRecord>,
    /// Trained and lost rows.
    pub counts: Counts,
    /// Memory of this process; `None` where no step was run.
    pub memory: Option<RunMemory>,
    /// The written directory: `adapter/` or `model/`.
    pub saved: PathBuf,
}

/// Planned and measured memory of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunMemory {
    /// The planned memory.
    pub planned: WorldMemory,
    /// Peak host memory of the process in bytes.
    pub held_bytes: u64,
    /// Bytes of a rank on its device, held at most and planned; zeros where devices are the host.
    pub device_bytes: [u64; 2],
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

/// Trains with the config, in a directory without a run.
///
/// # Errors
/// Errors of opening the session, of loading, of a step or of writing; [`Error::Stopped`] after a
/// signal, once a checkpoint is saved.
pub fn run(
    resolved: &ResolvedConfig,
    observer: &dyn Observer,
    stop: &StopFlag,
) -> Result<RunSummary, Error> {
    start(resolved, None, observer, stop)
}

/// Resumes the run in the output directory; the result equals that of an uninterrupted [`run`].
/// Without a checkpoint it starts over. A finished run is unchanged.
///
/// # Errors
/// As [`run`]; [`Error::Resume`] for a checkpoint that is damaged, or was saved by another run.
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

/// The default dtype of a model's written weights: that of its config, else f32.
pub(crate) fn stored_dtype(config: &serde_json::Value) -> DType {
    let named = config.get("dtype").or_else(|| config.get("torch_dtype"));
    match named.and_then(serde_json::Value::as_str) {
        Some("bfloat16") => DType::BF16,
        Some("float16") => DType::F16,
        _ => DType::F32,
    }
}
