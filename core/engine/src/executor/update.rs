//! The optimizer's step: reduced gradients -> new values and moments of the trainable params.

use espalier_interface::schedule::Act;
use espalier_plan::step_plan::{RegionKind, Task};

use super::lanes::walk;
use super::{Executor, storage};
use crate::error::Result;

/// The numbers of an AdamW update.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Update {
    /// Learning rate of this step.
    pub learning_rate: f64,
    /// Decay of the first and second moment.
    pub betas: [f64; 2],
    /// Added to the root of the second moment.
    pub eps: f64,
    /// Decoupled weight decay.
    pub weight_decay: f64,
    /// Updates so far, this one included.
    pub step: u64,
    /// Factor of the gradients, from clipping.
    pub factor: f64,
}

impl Executor {
    /// Updates the trainable params in the schedule's order.
    ///
    /// # Errors
    /// `Error::Plugin`: a call to the backend failed.
    pub fn update(&self, update: &Update) -> Result<()> {
        let scalars = [
            update.learning_rate,
            update.betas[0],
            update.betas[1],
            update.eps,
            update.weight_decay,
            update.step as f64,
            update.factor,
        ];
        let mut compute = |task: &Task| match task.action.act {
            Act::Optimize => self.optimize(task, &scalars),
            _ => self.transfer(task, None),
        };
        let all = |_: usize, _: &Task| true;
        let tasks = &self.step_plan.update;
        walk(&self.lanes(), tasks, &all, &mut compute, &|task| {
            self.transfer(task, None)
        })
    }

    fn optimize(&self, task: &Task, scalars: &[f64]) -> Result<()> {
        let unit = task.action.unit;
        self.since_wait.given(task.action.act, unit);
        let Some(kernels) = &self.prepared.trained[unit] else {
            return Ok(());
        };
        let [mut gradients, mut values, mut first, mut second] =
            self.storage.optimizer_ranges(unit);
        let region = |held| {
            let region = task.region(unit, held)?;
            Some(self.storage.region(region.offset, region.bytes))
        };
        if let Some(fetched) = region(RegionKind::Reduced) {
            gradients = fetched;
        }
        if let Some(fetched) = region(RegionKind::Values) {
            values = fetched;
        }
        if let Some(fetched) = region(RegionKind::Moments) {
            let each = fetched.bytes / 2;
            first = storage::part(fetched, &(0..each), 1);
            second = storage::part(fetched, &(each..fetched.bytes), 1);
        }
        let ranges = [gradients, values, first, second];
        self.launch_flat(&kernels.adamw, &ranges, scalars)
    }
}
