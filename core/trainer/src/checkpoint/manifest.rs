//! The content of `checkpoint.json`: where a run stood, what it was, and the hash of every file.

use espalier_engine::observer::EvalMetrics;
use espalier_system::files::FileHash;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

/// Version of the directory's layout where one file has all trained params, and another one all
/// moments.
pub(super) const WHOLE: u32 = 1;
/// Version of the layout where each rank has files of its own.
pub(super) const BY_RANK: u32 = 2;

/// What a checkpoint says of itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of the directory's layout.
    pub format: u32,
    /// How many ranks kept what is trained between them; unset in the layout without files of
    /// ranks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ranks: Option<u32>,
    /// How far the run was.
    #[serde(flatten)]
    pub progress: Progress,
    /// Where in the rows; a function of the step.
    pub position: Position,
    /// The run's circumstances, as `run.json` has them: what its result is a function of.
    pub run: Json,
    /// Every other file of the directory, by its path in it.
    pub files: Vec<FileHash>,
}

/// How far a run is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Steps done.
    pub step: u64,
    /// Mean loss of the last of them.
    pub last_loss: Option<f64>,
    /// Held-out loss before the first step.
    pub eval_before: Option<EvalMetrics>,
    /// Held-out loss at the last evaluation since.
    pub eval_after: Option<EvalMetrics>,
}

/// The place in the rows at which the next step begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Position {
    /// Passes over the rows that are done.
    pub epoch: u64,
    /// Steps of the pass after them that are done.
    pub step_of_epoch: u64,
    /// Steps of a pass.
    pub steps_per_epoch: u64,
}

impl Position {
    /// The place after `step` steps.
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
    fn a_pass_that_is_done_begins_the_next() {
        let place = |step| {
            let place = Position::after(step, 3);
            (place.epoch, place.step_of_epoch)
        };
        assert_eq!([0, 2, 3, 7].map(place), [(0, 0), (0, 2), (1, 0), (2, 1)]);
    }
}
