//! A schedule's actions in their order -> tasks and regions of memory, then the step plan.

mod micro_batch;
mod packed;
mod region_life;
mod update;

use std::collections::{BTreeMap, BTreeSet};

use espalier_interface::schedule::{
    Act, Action, Place, Placement, Schedule, ShardingRequest, When,
};
use espalier_interface::{PluginError, Result};

use self::region_life::{OpenRegion, RegionLife};
use super::{Lane, RegionKind, RegionSizes, StepPlan};

/// A task before regions have offsets.
struct DraftTask {
    action: Action,
    /// Indices of the regions that it works on.
    regions: Vec<usize>,
    /// Tasks that must be done before.
    after: BTreeSet<usize>,
    /// Units whose gradients begin here; see [`Task::begins`](super::Task::begins).
    begins: Vec<(usize, When)>,
}

/// A schedule while it is laid out.
pub(super) struct Layout<'a> {
    schedule: &'a Schedule,
    request: &'a ShardingRequest,
    sizes: &'a [RegionSizes],
    /// Number of tasks of a micro-batch; those of the update follow.
    split: usize,
    tasks: Vec<DraftTask>,
    /// The open regions by unit and kind.
    open: BTreeMap<(usize, RegionKind), OpenRegion>,
    /// All regions that were opened, in order.
    lives: Vec<RegionLife>,
}

impl<'a> Layout<'a> {
    /// A layout without a task.
    pub fn new(
        schedule: &'a Schedule,
        request: &'a ShardingRequest,
        sizes: &'a [RegionSizes],
    ) -> Self {
        Layout {
            schedule,
            request,
            sizes,
            split: schedule.micro_batch.len(),
            tasks: Vec::new(),
            open: BTreeMap::new(),
            lives: Vec::new(),
        }
    }

    /// The step plan.
    ///
    /// # Errors
    /// As [`StepPlan::of`].
    pub fn laid_out(mut self) -> Result<StepPlan> {
        for action in &self.schedule.micro_batch {
            self.add_micro_batch_task(action)?;
        }
        self.close_all();
        for action in &self.schedule.update {
            self.add_update_task(action)?;
        }
        self.close_all();
        self.one_lane_for_collectives()?;
        Ok(self.packed())
    }

    /// Whether a step has one sweep, which begins its gradients and ends them.
    fn is_one_sweep(&self) -> bool {
        self.schedule.sweeps(self.request) == 1
    }

    fn place(&self, unit: usize) -> Placement {
        self.schedule.placements[unit]
    }

    /// Whether each rank keeps only a part of the unit's optimizer state.
    fn is_cut(&self, unit: usize) -> bool {
        self.place(unit).optimizer != Place::Replicated
    }

    /// Whether a unit's gradients are in a region until they are reduced or applied.
    fn brings_gradients(&self, unit: usize) -> bool {
        self.trains(unit) && (self.is_cut(unit) || self.request.update_in_backward)
    }

    fn trains(&self, unit: usize) -> bool {
        self.request.units[unit].trainable > 0
    }

    /// Appends the task of an action and returns its index.
    fn begin(&mut self, action: &Action) -> usize {
        let offset = if self.tasks.len() < self.split {
            0
        } else {
            self.split
        };
        self.tasks.push(DraftTask {
            action: action.clone(),
            regions: Vec::new(),
            after: action.after.iter().map(|task| task + offset).collect(),
            begins: Vec::new(),
        });
        self.tasks.len() - 1
    }

    /// Checks that all gathers and reductions run on one lane: all ranks must call collectives in
    /// the same order.
    fn one_lane_for_collectives(&self) -> Result<()> {
        let calls = self.tasks.iter().map(|task| &task.action);
        let moving: BTreeSet<bool> = calls
            .filter(|action| is_collective(action))
            .map(|action| action.stream != 0)
            .collect();
        if moving.len() > 1 {
            Err(PluginError::invalid(
                "schedule: some gathers and reductions are on stream 0, others are not: all ranks must make them in one \
             order, so all belong on one side",
            ))
        } else {
            Ok(())
        }
    }
}

fn is_collective(action: &Action) -> bool {
    matches!(action.act, Act::Gather | Act::Reduce)
}

/// The lane of each task: the computing one, then one for each other stream, in their order.
/// Streams with collective calls share a lane: all ranks must make the calls in one order.
fn lanes_of(tasks: &[DraftTask]) -> Vec<Lane> {
    let moves = tasks.iter().map(|task| &task.action);
    let moves = moves.filter(|action| action.stream != 0);
    let of_calls = moves.clone().filter(|action| is_collective(action));
    let calls: BTreeSet<u32> = of_calls.map(|action| action.stream).collect();
    let shared = |stream| match calls.first() {
        Some(&first) if calls.contains(&stream) => first,
        _ => stream,
    };
    let streams: BTreeSet<u32> = moves.map(|action| shared(action.stream)).collect();
    let lane = |task: &DraftTask| {
        let stream = shared(task.action.stream);
        let index = streams.iter().position(|&one| one == stream);
        index.map_or(Lane::COMPUTE, |index| Lane(index + 1))
    };
    tasks.iter().map(lane).collect()
}
