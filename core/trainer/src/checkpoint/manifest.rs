//! The content of `checkpoint.json`: progress, `run.json` and the hash of every file.

use espalier_engine::observer::EvalMetrics;
use espalier_system::files::FileHash;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::train::Best;

/// Version of the layout with one file of all trained params, and one of all moments.
pub(super) const WHOLE: u32 = 1;
/// Version of the layout with separate files for each rank.
pub(super) const BY_RANK: u32 = 2;

/// The manifest of a checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of the directory's layout.
    pub format: u32,
    /// The number of ranks with own files; `None` in the layout without them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ranks: Option<u32>,
    /// The progress of the run.
    #[serde(flatten)]
    pub progress: Progress,
    /// The position in the rows; a function of the step.
    pub position: Position,
    /// The content of `run.json`: all inputs that determine the result.
    pub run: Json,
    /// Every other file of the directory, by its relative path.
    pub files: Vec<FileHash>,
}

/// The progress of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Steps done.
    pub step: u64,
    /// Mean loss of the last step.
    pub last_loss: Option<f64>,
    /// Held-out loss before the first step.
    pub eval_before: Option<EvalMetrics>,
    /// Held-out loss at the last evaluation since.
    pub eval_after: Option<EvalMetrics>,
    /// The lowest held-out loss after a step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub best: Option<Best>,
}

/// The position in the rows where the next step starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Position {
    /// Completed passes over the rows.
    pub epoch: u64,
    /// Completed steps of the present pass.
    pub step_of_epoch: u64,
    /// Steps of a pass.
    pub steps_per_epoch: u64,
}

impl Position {
    /// The position after `step` steps.
    pub(crate) fn after(step: u64, steps_per_epoch: u64) -> Self {
        let steps_per_epoch = steps_per_epoch.max(1);
        Position {
            epoch: step / steps_per_epoch,
            step_of_epoch: step % steps_per_epoch,
            steps_per_epoch,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_completed_pass_starts_the_next() {
        let place = |step| {
            let place = Position::after(step, 3);
            (place.epoch, place.step_of_epoch)
        };
        assert_eq!([0, 2, 3, 7].map(place), [(0, 0), (0, 2), (1, 0), (2, 1)]);
    }
}
