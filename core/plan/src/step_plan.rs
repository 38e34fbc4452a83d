//! A schedule -> where what it moves lies in a rank's memory, and what waits for what.
//!
//! Two lanes run side by side: one computes, the other moves bytes. What a task brings lies in a region of the rank's memory
//! from the task that opens it to the one that closes it; regions that are never open together share bytes. A task waits for
//! the tasks of the other lane that made what it reads, or that still use the memory it is about to fill.

mod layout;

use espalier_compile::params::Dtypes;
use espalier_compile::unit_runs::{UnitRuns, part_length};
use espalier_interface::schedule::{
    Act, Action, Place, Placement, Schedule, ShardingRequest, When,
};
use espalier_interface::{DType, Result};

use self::layout::Layout;

/// A sequence of tasks that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Lane {
    /// Kernels, and what the schedule puts on the same stream.
    Compute,
    /// Everything else.
    Move,
}

/// What of a unit a region holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RegionKind {
    /// The frozen run, whole and padded to equal parts.
    Frozen,
    /// The trainable run, likewise.
    Trainable,
    /// Gradients of the trainable run, likewise, before they are reduced.
    Gradients,
    /// The same in the dtype in which they travel, then this rank's part of their sum.
    Wire,
    /// This rank's part of the reduced gradients.
    Reduced,
    /// This rank's part of the trainable run.
    Values,
    /// This rank's parts of the first and the second moment, one after the other.
    Moments,
    /// Activations that the forward pass saves.
    Saved,
}

/// A unit's piece of a rank's region memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Index of the unit.
    pub unit: usize,
    /// What it holds.
    pub held: RegionKind,
    /// First byte.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
}

/// An action of the schedule with all that follows for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// The action.
    pub action: Action,
    /// Where it runs.
    pub lane: Lane,
    /// The last task of the other lane that must be done before.
    pub waits: Option<usize>,
    /// The regions it works on.
    pub regions: Vec<Region>,
    /// Units whose gradients begin here, and whether they do so in every micro-batch or in the first only.
    pub begins: Vec<(usize, When)>,
}

impl Task {
    /// The region of a unit that holds `held`; none where that lies in a place of its own between steps.
    pub fn region(&self, unit: usize, held: RegionKind) -> Option<Region> {
        let mut regions = self.regions.iter();
        regions
            .find(|region| region.unit == unit && region.held == held)
            .copied()
    }
}

/// Bytes of what a unit's regions can hold; see [`RegionKind`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegionSizes {
    /// [`RegionKind::Frozen`].
    pub frozen: u64,
    /// [`RegionKind::Trainable`].
    pub trainable: u64,
    /// [`RegionKind::Gradients`].
    pub gradients: u64,
    /// [`RegionKind::Wire`]; 0 where gradients travel in their own dtype.
    pub wire: u64,
    /// [`RegionKind::Reduced`].
    pub reduced: u64,
    /// [`RegionKind::Values`].
    pub values: u64,
    /// [`RegionKind::Moments`].
    pub moments: u64,
    /// [`RegionKind::Saved`].
    pub saved: u64,
}

impl RegionSizes {
    /// The sizes of a unit with these runs, cut into `parts`, whose gradients travel as `wire`.
    pub fn new(
        runs: &UnitRuns,
        dtypes: Dtypes,
        placement: Placement,
        parts: u64,
        wire: Option<DType>,
    ) -> Self {
        let part = part_length(runs.elements, parts);
        let padded = part * parts;
        let [params, reduce] = [dtypes.params, dtypes.reduce].map(DType::bytes);
        let travels = match placement.optimizer {
            Place::Replicated => runs.elements,
            _ => padded + part,
        };
        RegionSizes {
            frozen: match placement.frozen {
                Place::Host => runs.frozen_bytes,
                _ => part_length(runs.frozen_bytes, parts) * parts,
            },
            trainable: padded * params,
            gradients: padded * reduce,
            wire: match wire.filter(|&wire| wire != dtypes.reduce) {
                Some(wire) => travels * wire.bytes(),
                None => 0,
            },
            reduced: part * reduce,
            values: part * params,
            moments: 2 * part * reduce,
            saved: 0,
        }
    }

    fn of(&self, held: RegionKind) -> u64 {
        match held {
            RegionKind::Frozen => self.frozen,
            RegionKind::Trainable => self.trainable,
            RegionKind::Gradients => self.gradients,
            RegionKind::Wire => self.wire,
            RegionKind::Reduced => self.reduced,
            RegionKind::Values => self.values,
            RegionKind::Moments => self.moments,
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
    /// Lays out a schedule that is valid for `request`; `sizes` has an entry a unit.
    ///
    /// # Errors
    /// `INVALID` for bytes that are used before anything brings them, and for calls of collectives on both lanes.
    pub fn of(
        schedule: &Schedule,
        request: &ShardingRequest,
        sizes: &[RegionSizes],
    ) -> Result<Self> {
        Layout::new(schedule, request, sizes).laid_out()
    }

    /// Whether anything is moved.
    pub fn moves(&self) -> bool {
        let computes = |act| {
            matches!(
                act,
                Act::Forward | Act::Backward | Act::Norm | Act::Optimize
            )
        };
        let mut tasks = self.micro_batch.iter().chain(&self.update);
        tasks.any(|task| !computes(task.action.act))
    }
}

#[cfg(test)]
mod tests {
    use espalier_interface::schedule::{Part, UnitBytes};

    use super::*;

    const FROZEN: [Part; 1] = [Part::Frozen];

    fn request() -> ShardingRequest {
        let unit = |index: usize| UnitBytes {
            frozen: 256,
            forward_reads: vec![index],
            backward_reads: vec![index],
            ..UnitBytes::default()
        };
        ShardingRequest {
            units: (0..3).map(unit).collect(),
            world: 2,
            ranks_per_machine: 2,
            ..ShardingRequest::default()
        }
    }

    /// Units gathered one ahead, beside the computing.
    fn schedule() -> Schedule {
        let gather = |unit| Action::moving(Act::Gather, unit, &FROZEN).on(1);
        let release = |unit| Action::moving(Act::Release, unit, &FROZEN);
        let compute = Action::new;
        let placement = Placement {
            frozen: Place::Sharded,
            ..Placement::default()
        };
        Schedule {
            placements: vec![placement; 3],
            micro_batch: vec![
                gather(0),
                gather(1),
                compute(Act::Forward, 0),
                release(0),
                gather(2),
                compute(Act::Forward, 1),
                release(1),
                compute(Act::Forward, 2),
                release(2),
            ],
            ..Schedule::default()
        }
    }

    fn step_plan(schedule: &Schedule) -> Result<StepPlan> {
        let sizes = RegionSizes {
            frozen: 256,
            ..RegionSizes::default()
        };
        StepPlan::of(schedule, &request(), &[sizes; 3])
    }

    #[test]
    fn as_much_memory_is_needed_as_units_are_there_at_once() {
        let step_plan = step_plan(&schedule()).expect("all is brought");
        assert_eq!(step_plan.region_bytes, 2 * 256);
        assert!(step_plan.moves());
        let places: Vec<_> = [2, 5, 7]
            .map(|task: usize| {
                let task = &step_plan.micro_batch[task];
                task.region(task.action.unit, RegionKind::Frozen)
                    .expect("brought")
                    .offset
            })
            .to_vec();
        assert_ne!(places[0], places[1]);
        assert_ne!(places[1], places[2]);
    }

    #[test]
    fn a_leg_waits_for_what_it_reads_and_for_who_uses_the_memory_it_fills() {
        let tasks = step_plan(&schedule()).expect("all is brought").micro_batch;
        let waits: Vec<_> = tasks.iter().map(|task| task.waits).collect();
        // Unit 2 takes the place of unit 0, which is released by task 3.
        let expected = [
            None,
            None,
            Some(0),
            Some(0),
            Some(3),
            Some(1),
            Some(1),
            Some(4),
            Some(4),
        ];
        assert_eq!(waits, expected);
    }

    #[test]
    fn computing_with_what_nothing_brought_is_refused() {
        let mut schedule = schedule();
        schedule.micro_batch.remove(4);
        let error = step_plan(&schedule).expect_err("unit 2 is not there");
        assert!(
            error.message.contains("Frozen bytes of unit 2"),
            "{}",
            error.message
        );
    }

    #[test]
    fn gathers_on_both_lanes_are_refused() {
        let mut schedule = schedule();
        schedule.micro_batch[4].stream = 0;
        let error = step_plan(&schedule).expect_err("two orders");
        assert!(error.message.contains("one order"), "{}", error.message);
    }
}
