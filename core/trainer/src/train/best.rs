//! The best step of a run: its checkpoint is kept and written, and the run may end after it.

use espalier_engine::observer::{EvalMetrics, Event};
use serde_json::json;

use super::runner::Runner;
use crate::Error;
use crate::checkpoint::{self, Best, ResumeFrom};

impl Runner<'_> {
    /// Takes note of the held-out loss after a step.
    pub(super) fn note_held_out(&mut self, evaluated: &EvalMetrics) {
        self.progress.best = Best::after(self.progress.best.take(), evaluated);
    }

    /// Forgets the best step: its checkpoint is of other plugins.
    pub(super) fn forget_best(&mut self) {
        self.progress.best = None;
    }

    /// Whether the checkpoint of this step is kept because its held-out loss is the lowest.
    pub(super) fn is_best_to_keep(&self) -> bool {
        let best = self.progress.best.as_ref();
        self.config.run.keep_best
            && best.is_some_and(|best| best.evaluated.step == self.progress.step)
    }

    /// Whether `run.stop_after_worse` evaluations were no better than the best.
    pub(super) fn is_over(&self) -> bool {
        let most = self.config.run.stop_after_worse;
        let worse = self.progress.best.as_ref().map_or(0, |best| best.worse);
        most.is_some_and(|most| worse >= most)
    }

    /// Puts the trained params of the best step back, to be exported, and on record; also an early
    /// end of the run.
    ///
    /// # Errors
    /// A device that fails. Where the checkpoint is missing or damaged, the last step's params
    /// stay, with a warning.
    pub(super) fn restore_best(&mut self) -> Result<(), Error> {
        let (step, planned) = (self.progress.step, self.data.train.total_steps());
        if step < planned && self.is_over() {
            let worse = self.progress.best.as_ref().map_or(0, |best| best.worse);
            self.run["ended_early"] = json!({ "step": step, "planned": planned, "worse": worse });
            let text = format!(
                "ended after step {step} of {planned}: {worse} evaluations found no lower held-out loss"
            );
            self.observer.observe(&Event::Note(&text));
        }
        let best = self.progress.best.clone();
        let Some(Best {
            evaluated: best, ..
        }) = best.filter(|_| self.config.run.keep_best)
        else {
            return Ok(());
        };
        let kept = json!({ "step": best.step, "eval_loss": best.eval_loss });
        if best.step == self.progress.step {
            self.run["kept"] = kept;
            return Ok(());
        }
        let from = match self.checkpoints.choose(ResumeFrom::Step(best.step)) {
            Ok(found) => found.expect("a step that was asked for"),
            Err(error) => {
                let text = format!(
                    "the best step cannot be restored, and the last one is written: {error}"
                );
                self.observer.observe(&Event::Warning(&text));
                return Ok(());
            }
        };
        let team = &self.live.team;
        team.each(|executor| checkpoint::restore(&from, executor))?;
        self.run["kept"] = kept;
        self.progress.eval_after = Some(best.clone());
        let text = format!(
            "what is written is that of step {}, with the lowest held-out loss: {:.4}",
            best.step, best.eval_loss
        );
        self.observer.observe(&Event::Note(&text));
        Ok(())
    }
}
