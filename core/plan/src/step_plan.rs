//! A schedule -> the tasks of a step: the memory of the bytes they move, and the dependencies
//! between tasks.
//!
//! Lanes run in parallel: one computes, the others move bytes, one for each other stream of the
//! schedule. What a task moves is kept in a region of the rank's memory, from the task that opens
//! it to the one that closes it. Regions that are never open together share bytes. A task waits for
//! tasks of other lanes that write what it reads, or that still use the memory it is about to fill.

mod layout;
mod unread;

use espalier_interface::Result;
use espalier_interface::schedule::{Act, Action, Schedule, ShardingRequest, When};

use self::layout::Layout;
use crate::block_layout::SharedGradients;

/// A sequence of tasks that run one after the other: index of a stream of the schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Lane(pub usize);

impl Lane {
    /// Kernels, and the moves that the schedule puts on stream 0.
    pub const COMPUTE: Lane = Lane(0);
}

/// The bytes of a unit that a region holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RegionKind {
    /// The whole frozen run, padded to equal parts.
    Frozen,
    /// The whole trainable run, padded to equal parts.
    Trainable,
    /// Gradients of the whole trainable run, padded where it is cut, before they are reduced. Those
    /// of a run that is not cut are in a region only where the step updates in the backward pass.
    Gradients,
    /// The gradients in the dtype in which they are sent, then this rank's part of their sum.
    Wire,
    /// This rank's part of the reduced gradients.
    Reduced,
    /// This rank's part of the trainable run.
    Values,
    /// This rank's part of each tensor of the optimizer's state, one after the other.
    State,
    /// Activations that the forward pass saves.
    Saved,
}

/// A range of a rank's region memory that holds bytes of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Index of the unit.
    pub unit: usize,
    /// The bytes that it holds.
    pub kind: RegionKind,
    /// First byte.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
}

/// An action of the schedule with its lane, regions and dependencies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// The action.
    pub action: Action,
    /// The lane that runs it.
    pub lane: Lane,
    /// The tasks of other lanes that must be done before, in order. Each task is named on which it
    /// depends directly, since any of them may take no part in a pass.
    pub waits: Vec<usize>,
    /// The regions it works on.
    pub regions: Vec<Region>,
    /// Units whose gradients start from zero here, and whether in every micro-batch or only in the
    /// first.
    pub begins: Vec<(usize, When)>,
}

impl Task {
    /// Whether it moves what an update works on, or updates.
    pub fn is_of_update(&self) -> bool {
        let works_on = |kind| self.region(self.action.unit, kind).is_some();
        works_on(RegionKind::Values) || works_on(RegionKind::State)
    }

    /// The region of a unit that holds `kind`; `None` where those bytes have a separate buffer
    /// between steps.
    pub fn region(&self, unit: usize, kind: RegionKind) -> Option<Region> {
        let mut regions = self.regions.iter();
        regions
            .find(|region| region.unit == unit && region.kind == kind)
            .copied()
    }
}

/// Bytes of each of a unit's regions; see [`RegionKind`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegionSizes {
    /// [`RegionKind::Frozen`].
    pub frozen: u64,
    /// [`RegionKind::Trainable`].
    pub trainable: u64,
    /// [`RegionKind::Gradients`].
    pub gradients: u64,
    /// [`RegionKind::Wire`]; 0 where gradients are sent in their own dtype.
    pub wire: u64,
    /// [`RegionKind::Reduced`].
    pub reduced: u64,
    /// [`RegionKind::Values`].
    pub values: u64,
    /// [`RegionKind::State`].
    pub state: u64,
    /// [`RegionKind::Saved`].
    pub saved: u64,
}

impl RegionSizes {
    fn of(&self, kind: RegionKind) -> u64 {
        match kind {
            RegionKind::Frozen => self.frozen,
            RegionKind::Trainable => self.trainable,
            RegionKind::Gradients => self.gradients,
            RegionKind::Wire => self.wire,
            RegionKind::Reduced => self.reduced,
            RegionKind::Values => self.values,
            RegionKind::State => self.state,
            RegionKind::Saved => self.saved,
        }
    }
}

/// A schedule that is laid out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepPlan {
    /// The tasks of a micro-batch.
    pub micro_batch: Vec<Task>,
    /// The tasks of the update.
    pub update: Vec<Task>,
    /// Bytes of all regions.
    pub region_bytes: u64,
}

impl StepPlan {
    /// Lays out a schedule that is valid for `request`; `sizes` has one entry per unit.
    ///
    /// # Errors
    /// `INVALID` for an action on bytes that no action before it has fetched or gathered, and for
    /// gathers and reductions on both lanes. `UNSUPPORTED` for gradients that are reduced before
    /// the last of several micro-batches.
    pub fn of(
        schedule: &Schedule,
        request: &ShardingRequest,
        sizes: &[RegionSizes],
    ) -> Result<Self> {
        Layout::new(schedule, request, sizes).laid_out()
    }

    /// Begins the shared gradients of each unit in the one sweep of a step: in the backward pass of
    /// the unit that is the first to add to them, which is that unit's last pass.
    pub(crate) fn begin_gradients(&mut self, shared: &[Option<SharedGradients>]) {
        for (unit, shared) in shared.iter().enumerate() {
            let Some(shared) = shared else {
                continue;
            };
            let is_begin = |task: &&mut Task| {
                matches!(task.action.act, Act::Forward | Act::Backward)
                    && task.action.unit == shared.begins_in
            };
            let mut tasks = self.micro_batch.iter_mut();
            if let Some(task) = tasks.rfind(is_begin) {
                task.begins.push((unit, When::Every));
            }
        }
    }

    /// Number of lanes, the computing one included.
    pub fn lanes(&self) -> usize {
        let tasks = self.micro_batch.iter().chain(&self.update);
        tasks.map(|task| task.lane.0 + 1).max().unwrap_or(1)
    }

    /// Whether any task moves bytes. The end of a region moves none.
    pub fn moves(&self) -> bool {
        let stays = |act| {
            matches!(
                act,
                Act::Forward | Act::Backward | Act::Norm | Act::Optimize | Act::Release
            )
        };
        let mut tasks = self.micro_batch.iter().chain(&self.update);
        tasks.any(|task| !stays(task.action.act))
    }
}

#[cfg(test)]
mod tests;
