//! The metrics of a run -> TensorBoard event files.
//!
//! Every number in a line of `metrics.jsonl` becomes a scalar of that name: `train/loss`,
//! `eval/loss`.

mod event;
mod event_file;
mod record;

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::SystemTime;

use espalier_engine::observer::{Event, Observer};
use serde::Serialize;
use serde_json::Value as Json;

use crate::Error;

pub use event_file::EventFile;

/// Prefix of the metrics of an evaluation.
const EVALUATION: &str = "eval_";

/// Writes event files into a folder. A failure is printed once, and the run continues without event
/// files.
#[derive(Debug)]
pub struct TensorBoard {
    directory: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    /// No metric has arrived.
    Waiting,
    Writing(EventFile),
    Failed,
}

impl TensorBoard {
    /// Writes into `directory`, starting with the first metric.
    pub fn new(directory: &Path) -> Self {
        TensorBoard {
            directory: directory.to_owned(),
            state: Mutex::new(State::Waiting),
        }
    }

    /// Takes the metrics of `step`; `before` is the number of steps completed before the first
    /// metric.
    fn take(&self, metrics: &impl Serialize, group: &str, [step, before]: [u64; 2]) {
        let mut state = match self.state.lock() {
            Ok(state) => state,
            Err(poisoned) => poisoned.into_inner(),
        };
        let metrics = serde_json::to_value(metrics).expect("metrics are plain data");
        if let Err(error) = self.write(&mut state, &metrics, group, [step, before]) {
            tracing::warn!("TensorBoard's curves end before step {step}: {error}");
            *state = State::Failed;
        }
    }

    fn write(
        &self,
        state: &mut State,
        metrics: &Json,
        group: &str,
        [step, before]: [u64; 2],
    ) -> Result<(), Error> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let wall_time = now.map_or(0.0, |now| now.as_secs_f64());
        if matches!(state, State::Waiting) {
            *state = State::Writing(EventFile::create(&self.directory, before, wall_time)?);
        }
        let State::Writing(file) = state else {
            return Ok(());
        };
        let named = metrics.as_object().into_iter().flatten();
        let values: Vec<(&str, f64)> = named
            .filter(|(name, _)| *name != "step")
            .filter_map(|(name, value)| {
                let name = name.strip_prefix(EVALUATION).unwrap_or(name);
                Some((name, value.as_f64()?))
            })
            .collect();
        file.scalars(group, step, wall_time, &values)
    }
}

impl Observer for TensorBoard {
    fn observe(&self, event: &Event<'_>) {
        match event {
            Event::StepFinished(step) => {
                self.take(step, "train", [step.step, step.step.saturating_sub(1)]);
            }
            Event::Evaluated(eval) => self.take(eval, "eval", [eval.step, eval.step]),
            _ => {}
        }
    }
}
