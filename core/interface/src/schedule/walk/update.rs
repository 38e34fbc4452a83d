//! The acts of the update: the state that each requires, and the state that it leaves.

use super::{Found, Gradients, ParamsOnDevice, Walk};
use crate::schedule::{Act, Action, Part, Place};

/// The error for a release of what an update changes.
pub(super) fn lost(part: Part) -> String {
    format!("the update of {part:?} would be lost: expected `offload`")
}

impl Walk<'_> {
    pub(super) fn in_update(&mut self, action: &Action) -> Found {
        let unit = action.unit;
        if action.act == Act::Optimize {
            return self.optimize(unit);
        }
        for &part in &action.parts {
            match (action.act, part) {
                (Act::Fetch, Part::Trainable) => self.fetch_weights(unit, part)?,
                (Act::Fetch, Part::Optimizer) => self.fetch_moments(unit)?,
                (Act::Fetch, Part::Gradients) => {
                    self.turn(unit, Gradients::OnHost, Gradients::Fetched)?;
                }
                (Act::Release, Part::Gradients) => {
                    self.turn(unit, Gradients::Fetched, Gradients::Adding)?;
                }
                (Act::Offload, Part::Trainable | Part::Optimizer) => self.offload(unit, part)?,
                (Act::Release, Part::Trainable | Part::Optimizer) => return Err(lost(part)),
                (act, part) => {
                    return Err(format!(
                        "{act:?} of {part:?} belongs into `micro_batch`, found in `update`"
                    ));
                }
            }
        }
        Ok(())
    }

    pub(super) fn fetch_moments(&mut self, unit: usize) -> Found {
        let place = self.place(unit).optimizer;
        match (place, self.units[unit].optimizer) {
            (Place::ShardedOnHost, ParamsOnDevice::Nothing) => {
                self.hold(unit, Part::Optimizer, ParamsOnDevice::Part);
                Ok(())
            }
            (Place::ShardedOnHost, _) => Err("its optimizer state was fetched already".to_owned()),
            (place, _) => Err(format!("its optimizer state is {place:?}, not on the host")),
        }
    }

    fn turn(&mut self, unit: usize, expected: Gradients, next: Gradients) -> Found {
        let gradients = &mut self.units[unit].gradients;
        if *gradients != expected {
            return Err(format!(
                "its gradients are {gradients:?}: expected {expected:?}"
            ));
        }
        *gradients = next;
        Ok(())
    }

    /// Refuses the update of a unit that has nothing to train, and a second one.
    pub(super) fn updates_once(&self, unit: usize) -> Found {
        let (updated, trains) = (self.units[unit].updated, self.request.trains(unit));
        if trains && !updated {
            return Ok(());
        }
        Err(format!(
            "unit {unit} is updated {} times: expected {}",
            u32::from(updated) + 1,
            u32::from(trains)
        ))
    }

    fn optimize(&mut self, unit: usize) -> Found {
        self.updates_once(unit)?;
        let at = self.place(unit);
        let state = &self.units[unit];
        let mut missing = self.not_fetched(unit, &[ParamsOnDevice::Part, ParamsOnDevice::Whole]);
        if at.optimizer == Place::ShardedOnHost && state.gradients != Gradients::Fetched {
            missing.push("gradients");
        }
        if !missing.is_empty() {
            return Err(format!("not there: its {}", missing.join(", its ")));
        }
        self.units[unit].updated = true;
        Ok(())
    }

    /// What an update of a unit works on and the host keeps, as far as it was not fetched: params
    /// in one of the states `fetched`, and optimizer state.
    pub(super) fn not_fetched(&self, unit: usize, fetched: &[ParamsOnDevice]) -> Vec<&'static str> {
        let (at, state) = (self.place(unit), &self.units[unit]);
        let mut missing = Vec::new();
        if at.trainable == Place::ShardedOnHost && !fetched.contains(&state.trainable) {
            missing.push("params");
        }
        let keeps = self.request.units[unit].optimizer > 0;
        if keeps
            && at.optimizer == Place::ShardedOnHost
            && state.optimizer == ParamsOnDevice::Nothing
        {
            missing.push("optimizer state");
        }
        missing
    }

    pub(super) fn offload(&mut self, unit: usize, part: Part) -> Found {
        let state = &self.units[unit];
        let held = match part {
            Part::Optimizer => state.optimizer,
            _ => state.trainable,
        };
        if held == ParamsOnDevice::Nothing || !state.updated {
            return Err(format!("{part:?} bytes were not fetched and updated"));
        }
        self.hold(unit, part, ParamsOnDevice::Nothing);
        Ok(())
    }

    pub(super) fn end_update(&self) -> Found {
        for (unit, state) in self.units.iter().enumerate() {
            if self.request.trains(unit) && !state.updated {
                return Err(format!("unit {unit} is updated 0 times: expected 1"));
            }
            if state.trainable != ParamsOnDevice::Nothing
                || state.optimizer != ParamsOnDevice::Nothing
            {
                return Err(format!(
                    "what was updated of unit {unit} is never offloaded"
                ));
            }
            if state.gradients == Gradients::Fetched {
                return Err(format!("the gradients of unit {unit} are never released"));
            }
        }
        Ok(())
    }
}
