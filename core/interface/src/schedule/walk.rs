//! Simulates a step of a schedule: where the bytes of every unit are after each action.

mod backward_update;
mod micro_batch;
mod update;

use super::form::{List, wrong};
use super::{Action, Part, Place, Placement, Schedule, ShardingRequest, When};
use crate::Result;

/// The result of an action, with a message where it is not allowed.
type Found = std::result::Result<(), String>;

/// How much of a unit's params is on the device, beyond the part kept there between steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ParamsOnDevice {
    #[default]
    Nothing,
    /// The rank's own part of sharded bytes.
    Part,
    Whole,
    /// The rank's own part, for an update in the backward pass. No pass reads it.
    ForUpdate,
}

/// The state of a unit's gradients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Gradients {
    #[default]
    Adding,
    Reduced,
    /// Counted in the norm.
    Counted,
    OnHost,
    /// Fetched to the device for the update.
    Fetched,
    /// Released after an update in the backward pass.
    Released,
}

/// The place of saved activations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Saved {
    #[default]
    Nothing,
    Here,
    OnHost,
    Fetched,
}

#[derive(Clone, Copy, Default)]
struct UnitState {
    frozen: ParamsOnDevice,
    trainable: ParamsOnDevice,
    optimizer: ParamsOnDevice,
    gradients: Gradients,
    saved: Saved,
    updated: bool,
}

/// A step that is simulated.
pub(super) struct Walk<'a> {
    schedule: &'a Schedule,
    request: &'a ShardingRequest,
    units: Vec<UnitState>,
    most_gathered: usize,
}

impl<'a> Walk<'a> {
    /// The state before a step of a schedule whose form was checked.
    pub(super) fn new(schedule: &'a Schedule, request: &'a ShardingRequest) -> Self {
        Walk {
            schedule,
            request,
            units: vec![UnitState::default(); request.units.len()],
            most_gathered: 0,
        }
    }

    /// Most units whose weights were fetched or gathered at once so far.
    pub(super) fn most_gathered(&self) -> usize {
        self.most_gathered
    }

    fn count_gathered(&mut self) {
        let held = |held| matches!(held, ParamsOnDevice::Part | ParamsOnDevice::Whole);
        let brought = |one: &&UnitState| held(one.frozen) || held(one.trainable);
        let gathered = self.units.iter().filter(brought).count();
        self.most_gathered = self.most_gathered.max(gathered);
    }

    /// Simulates a step of `micro_batches` micro-batches.
    pub(super) fn step(&mut self, micro_batches: u32) -> Result<()> {
        let schedule = self.schedule;
        for number in 1..=micro_batches {
            let here = |action: &Action| match action.when {
                When::Every => true,
                When::First => number == 1,
                When::Last => number == micro_batches,
            };
            for (index, action) in schedule.micro_batch.iter().enumerate() {
                if here(action) {
                    self.in_micro_batch(action).map_err(|what| {
                        let at = List::MicroBatch.at(index, action);
                        wrong(format_args!(
                            "{at}, micro-batch {number} of {micro_batches}: {what}"
                        ))
                    })?;
                    self.count_gathered();
                }
            }
            self.end_micro_batch().map_err(wrong)?;
        }
        self.end_micro_batches().map_err(wrong)?;
        for (index, action) in schedule.update.iter().enumerate() {
            self.in_update(action).map_err(|what| {
                wrong(format_args!("{}: {what}", List::Update.at(index, action)))
            })?;
        }
        self.end_update().map_err(wrong)
    }

    fn place(&self, unit: usize) -> Placement {
        self.schedule.placements[unit]
    }

    /// Whether a unit's gradients have to be reduced.
    fn must_reduce(&self, unit: usize) -> bool {
        let at_home = self.place(unit).optimizer == Place::Replicated;
        self.request.trains(unit) && (self.request.world > 1 || !at_home)
    }

    /// Whether a part of a unit's weights is on the device as a whole.
    fn is_there(&self, unit: usize, part: Part) -> bool {
        let (place, held) = self.weights(unit, part);
        let alone = self.schedule.ranks_sharing(self.request) == 1;
        self.request.units[unit].bytes(part) == 0
            || place == Place::Replicated
            || held == ParamsOnDevice::Whole
            || (held == ParamsOnDevice::Part && alone)
    }

    fn weights(&self, unit: usize, part: Part) -> (Place, ParamsOnDevice) {
        match part {
            Part::Frozen => (self.place(unit).frozen, self.units[unit].frozen),
            _ => (self.place(unit).trainable, self.units[unit].trainable),
        }
    }

    fn hold(&mut self, unit: usize, part: Part, held: ParamsOnDevice) {
        match part {
            Part::Frozen => self.units[unit].frozen = held,
            Part::Optimizer => self.units[unit].optimizer = held,
            _ => self.units[unit].trainable = held,
        }
    }
}
