//! Updates within the backward pass: the state that they require, and the state that they leave.

use super::{Found, Gradients, Walk};
use crate::schedule::Place;

impl Walk<'_> {
    pub(super) fn optimize_in_backward(&mut self, unit: usize) -> Found {
        self.updates_once(unit)?;
        let at = self.place(unit);
        let is_on_device = |place| matches!(place, Place::Replicated | Place::Sharded);
        if !is_on_device(at.trainable) || !is_on_device(at.optimizer) {
            return Err(format!(
                "its params are {:?} and its optimizer state is {:?}: an update in the backward pass works on what is \
                 kept on the device",
                at.trainable, at.optimizer
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

    /// Checks that all trained units were updated and hold no gradients.
    pub(super) fn end_backward_updates(&self) -> Found {
        for unit in self.request.trained() {
            let state = &self.units[unit];
            if !state.updated {
                return Err(format!("unit {unit} is updated 0 times: expected 1"));
            }
            if state.gradients != Gradients::Released {
                return Err(format!("the gradients of unit {unit} are never released"));
            }
        }
        Ok(())
    }
}
