//! The content of `checkpoint.json`: progress, `run.json` and the hash of every file.

use espalier_engine::observer::EvalMetrics;
use espalier_system::files::FileHash;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

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

/// The lowest held-out loss of a run so far, and what came after it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Best {
    /// The evaluation with that loss.
    pub evaluated: EvalMetrics,
    /// Evaluations since, none of which was lower.
    pub worse: u64,
}

impl Best {
    /// The best after a further evaluation. A loss that is no number is worse than any.
    pub(crate) fn after(best: Option<Self>, evaluated: &EvalMetrics) -> Option<Self> {
        let loss = evaluated.eval_loss;
        match best {
            Some(best) if loss.is_nan() || loss >= best.evaluated.eval_loss => Some(Best {
                worse: best.worse + 1,
                ..best
            }),
            None if loss.is_nan() => None,
            _ => Some(Best {
                evaluated: evaluated.clone(),
                worse: 0,
            }),
        }
    }
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

    #[test]
    fn evaluations_that_are_no_better_are_counted() {
        let losses = [f64::NAN, 3.0, 2.0, 2.0, f64::NAN, 2.5, 1.0];
        let mut best = None;
        let mut seen = Vec::new();
        for (step, eval_loss) in (1..).zip(losses) {
            let evaluated = EvalMetrics {
                step,
                eval_loss,
                eval_perplexity: eval_loss.exp(),
                ..EvalMetrics::default()
            };
            best = Best::after(best, &evaluated);
            seen.push(
                best.as_ref()
                    .map(|best: &Best| (best.evaluated.step, best.worse)),
            );
        }
        let expected = [(2, 0), (3, 0), (3, 1), (3, 2), (3, 3), (7, 0)];
        assert_eq!(seen[0], None);
        assert_eq!(seen[1..], expected.map(Some));
    }
}
