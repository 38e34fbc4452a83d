//! The optimizer's step: reduced gradients -> new values and state of the trainable params.

use espalier_interface::schedule::Act;
use espalier_plan::step_plan::{RegionKind, Task};

use super::Executor;
use super::lanes::walk;
use super::storage::{TrainedRun, part};
use crate::error::Result;

/// The numbers of an update.
#[derive(Clone, Debug, PartialEq)]
pub struct Update {
    /// The scalars of the optimizer's op, in its order.
    pub scalars: Vec<f64>,
}

impl Executor {
    /// Updates the trainable params in the schedule's order.
    ///
    /// # Errors
    /// `Error::Plugin`: a call to the backend failed.
    pub fn update(&self, update: &Update) -> Result<()> {
        let mut compute = |task: &Task| match task.action.act {
            Act::Optimize => self.optimize(task, update),
            _ => self.transfer(task, None),
        };
        let all = |_: usize, _: &Task| true;
        let tasks = &self.step_plan.update;
        walk(&self.lanes(), tasks, &all, &mut compute, &|task| {
            self.transfer(task, None)
        })
    }

    fn optimize(&self, task: &Task, update: &Update) -> Result<()> {
        let unit = task.action.unit;
        self.since_wait.given(task.action.act, unit);
        let Some(kernels) = &self.prepared.trained[unit] else {
            return Ok(());
        };
        let run = self.brought(task);
        let mut ranges = vec![run.gradients, run.values];
        ranges.extend(run.state);
        self.launch_flat(&kernels.update, &ranges, &update.scalars)
    }

    /// What a task of the update works on: what it has brought, else what this rank keeps on its
    /// device.
    fn brought(&self, task: &Task) -> TrainedRun {
        let unit = task.action.unit;
        let mut run = self.storage.trained(unit).clone();
        let region = |held| {
            let region = task.region(unit, held)?;
            Some(self.storage.region(region.offset, region.bytes))
        };
        run.gradients = region(RegionKind::Reduced).unwrap_or(run.gradients);
        run.values = region(RegionKind::Values).unwrap_or(run.values);
        if let Some(fetched) = region(RegionKind::State) {
            let homes = self.homes(unit, RegionKind::State).into_iter();
            let places = homes.map(|(home, at)| part(fetched, &(at..at + home.bytes), 1));
            run.state = places.collect();
        }
        run
    }
}
