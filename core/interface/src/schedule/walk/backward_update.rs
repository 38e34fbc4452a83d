//! Updates within the backward pass: the state that they require, and the state that they leave.

use super::update::lost;
use super::{Found, Gradients, ParamsOnDevice, Walk};
use crate::schedule::{Act, Part, Place};

impl Walk<'_> {
    /// Moves a part for an update in the backward pass. False where the action is none of these: a
    /// fetch behind the reduction of a unit or its norm, which no pass comes after that reads the
    /// unit, and the way back.
    pub(super) fn moved_for_update(
        &mut self,
        act: Act,
        unit: usize,
        part: Part,
    ) -> std::result::Result<bool, String> {
        if !self.request.update_in_backward {
            return Ok(false);
        }
        let held = self.units[unit].trainable;
        let is_whole = self.units[unit].gradients != Gradients::Adding;
        match (act, part) {
            (Act::Offload, Part::Gradients) => {
                return Err(
                    "this run applies gradients where they are reduced (`update_in_backward`): expected `release`"
                        .to_owned(),
                );
            }
            (Act::Offload, Part::Trainable) if held == ParamsOnDevice::ForUpdate => {
                self.offload(unit, part)?;
            }
            (Act::Offload, Part::Optimizer) => self.offload(unit, part)?,
            (Act::Release, Part::Optimizer) => return Err(lost(part)),
            (Act::Fetch, Part::Trainable) if is_whole => self.fetch_values(unit)?,
            (Act::Fetch, Part::Optimizer) if is_whole => self.fetch_moments(unit)?,
            (Act::Fetch, Part::Optimizer) => {
                return Err("its gradients are not whole yet: expected it later".to_owned());
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn fetch_values(&mut self, unit: usize) -> Found {
        match (self.place(unit).trainable, self.units[unit].trainable) {
            (Place::ShardedOnHost, ParamsOnDevice::Nothing) => {
                self.hold(unit, Part::Trainable, ParamsOnDevice::ForUpdate);
                Ok(())
            }
            (Place::ShardedOnHost, ParamsOnDevice::ForUpdate) => {
                Err("its params were fetched already".to_owned())
            }
            (Place::ShardedOnHost, _) => Err(
                "its params are on the device for passes: expected their `release` before"
                    .to_owned(),
            ),
            (place, _) => Err(format!("its params are {place:?}, not on the host")),
        }
    }

    pub(super) fn optimize_in_backward(&mut self, unit: usize) -> Found {
        self.updates_once(unit)?;
        let missing = self.not_fetched(unit, &[ParamsOnDevice::ForUpdate]);
        if !missing.is_empty() {
            return Err(format!(
                "not there: its {}, to be fetched once its gradients are whole",
                missing.join(", its ")
            ));
        }
        let state = &mut self.units[unit];
        if state.gradients != Gradients::Counted {
            return Err(format!(
                "its gradients are {:?}: expected them counted in the norm before",
                state.gradients
            ));
        }
        state.updated = true;
        Ok(())
    }

    pub(super) fn release_gradients(&mut self, unit: usize) -> Found {
        let state = &mut self.units[unit];
        match (state.updated, state.gradients) {
            (false, _) => Err("its gradients are not applied yet".to_owned()),
            (true, Gradients::Counted) => {
                state.gradients = Gradients::Released;
                Ok(())
            }
            (true, _) => Err("its gradients were released already".to_owned()),
        }
    }

    /// Checks that all trained units were updated, hold no gradients, and are where they are kept.
    pub(super) fn end_backward_updates(&self) -> Found {
        for unit in self.request.trained() {
            let state = &self.units[unit];
            if !state.updated {
                return Err(format!("unit {unit} is updated 0 times: expected 1"));
            }
            if state.gradients != Gradients::Released {
                return Err(format!("the gradients of unit {unit} are never released"));
            }
            if state.optimizer != ParamsOnDevice::Nothing {
                return Err(format!(
                    "the optimizer state of unit {unit} is never offloaded"
                ));
            }
        }
        Ok(())
    }
}
