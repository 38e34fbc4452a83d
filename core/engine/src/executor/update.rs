//! The optimizer's step: reduced gradients -> new values and state of the trainable params.

use espalier_interface::optimizer::{ParamSize, scalar};
use espalier_interface::schedule::Act;
use espalier_interface::stochastic;
use espalier_plan::param_groups::{GroupPart, OnlyParam};
use espalier_plan::step_plan::{RegionKind, Task};

use super::Executor;
use super::lanes::walk;
use super::storage::{TrainedRun, part};
use crate::error::Result;

/// The numbers of an update.
#[derive(Clone, Debug, PartialEq)]
pub struct Update {
    /// For each group of params the scalars of the optimizer's op, in its order.
    pub large: Vec<Vec<f64>>,
    /// The same for small params and the op of their optimizer.
    pub small: Vec<Vec<f64>>,
}

impl Executor {
    /// Whether the schedule updates each unit in the backward pass, which then needs the numbers of
    /// the update: see [`Pass::Train`](super::Pass::Train).
    pub fn updates_in_backward(&self) -> bool {
        self.shard_layout.updates_in_backward
    }

    /// Updates the trainable params in the schedule's order.
    ///
    /// # Errors
    /// `Error::Plugin`: a call to the backend failed.
    pub fn update(&self, update: &Update) -> Result<()> {
        let mut compute = |task: &Task| match task.action.act {
            Act::Optimize => self.optimize(task, update),
            _ => self.transfer(task, &[]),
        };
        let works = |_: usize, task: &Task| self.works_in_update(task);
        let tasks = (&self.step_plan.update[..], &self.waits.update);
        walk(&self.lanes(), tasks, &works, &mut compute, &|task| {
            self.transfer(task, &[])
        })
    }

    /// Updates the trainable params of a unit.
    pub(super) fn optimize(&self, task: &Task, update: &Update) -> Result<()> {
        let unit = task.action.unit;
        self.since_wait.given(task.action.act, unit);
        let parts = &self.group_parts[unit];
        if parts.is_empty() {
            return Ok(());
        }
        let run = self.brought(task);
        let own = self.own_run(unit);
        let tensors = self.optimizer().tensors();
        let mut ranges = Vec::with_capacity(2 + run.state.len());
        for GroupPart {
            group,
            size,
            elements,
            only,
        } in parts
        {
            ranges.clear();
            ranges.push(part(run.gradients, elements, self.dtypes.gradients.bytes()));
            ranges.push(part(run.values, elements, self.dtypes.params.bytes()));
            let of_run = own.start + elements.start..own.start + elements.end;
            let state = self.optimizer().tensors_of(*size);
            ranges.extend(state.map(|tensor| {
                let range = (self.shard_layout).state_range(unit, tensor, own.start, &of_run);
                part(run.state[tensor], &range, tensors[tensor].1.dtype.bytes())
            }));
            let kernel = self.prepared.update(*size, elements.end - elements.start);
            let kernel = kernel.expect("every launch of the update is prepared");
            let scalars = match size {
                ParamSize::Large => &update.large,
                ParamSize::Small => &update.small,
            };
            match only {
                None => self.launch_flat(&kernel, &ranges, &scalars[*group])?,
                Some(only) => {
                    let scalars = self.scalars_of(*only, *size, &scalars[*group]);
                    self.launch_flat(&kernel, &ranges, &scalars)?;
                }
            }
        }
        Ok(())
    }

    /// The scalars of a launch on the elements of one param alone, given those of its group.
    fn scalars_of(&self, only: OnlyParam, size: ParamSize, of_group: &[f64]) -> Vec<f64> {
        let [low, high] = stochastic::name_words(&self.params[only.param].name);
        let names = &self.optimizer().of_size(size).scalars;
        let of_launch = |(name, value): (&String, &f64)| match name.as_str() {
            scalar::NAME_LOW => f64::from(low),
            scalar::NAME_HIGH => f64::from(high),
            scalar::FIRST => only.first as f64,
            _ => *value,
        };
        names.iter().zip(of_group).map(of_launch).collect()
    }

    /// The operands of a unit's update: the bytes that it has brought, else those that this
    /// rank keeps on its device.
    fn brought(&self, task: &Task) -> TrainedRun {
        let unit = task.action.unit;
        let mut run = self.storage.trained(unit).clone();
        let region = |kind| {
            let region = task.region(unit, kind)?;
            Some(self.storage.region(region.offset, region.bytes))
        };
        let gradients = region(RegionKind::Reduced).or_else(|| region(RegionKind::Gradients));
        run.gradients = gradients.unwrap_or(run.gradients);
        run.values = region(RegionKind::Values).unwrap_or(run.values);
        if let Some(fetched) = region(RegionKind::State) {
            let homes = self.homes(unit, RegionKind::State).into_iter();
            let places = homes.map(|(home, at)| part(fetched, &(at..at + home.bytes), 1));
            run.state = places.collect();
        }
        run
    }
}
