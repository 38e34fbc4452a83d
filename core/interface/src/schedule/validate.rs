//! Checks that a schedule can be executed, and counts how much of the model is gathered at once.

use super::form::{self, wrong};
use super::walk::Walk;
use super::{Act, Schedule, ShardingRequest};
use crate::Result;

impl Schedule {
    /// Checks the schedule by simulating steps of one, two and three sweeps, each of one
    /// micro-batch or of several.
    ///
    /// - Every unit is computed once forward, in order, and once backward, in the opposite order.
    /// - Bytes are on the device when they are used. They are fetched or gathered once, from where
    ///   they are kept, and released in the same step.
    /// - Trained units are reduced once their gradients are complete, counted in the norm and
    ///   updated, each once, with their optimizer state on the device.
    /// - Where the run updates in the backward pass, a unit is updated after all passes that read
    ///   it, and its gradients are released behind that.
    ///
    /// # Errors
    /// `INVALID`, naming the action and what is wrong with it.
    pub fn validate(&self, request: &ShardingRequest) -> Result<()> {
        form::check(self, request)?;
        self.check_order(request)?;
        for micro_batches in 1..=3 {
            Walk::new(self, request).step(micro_batches)?;
        }
        Ok(())
    }

    /// Most units whose fetched or gathered weights a rank holds at once during micro-batches.
    ///
    /// # Errors
    /// As [`Schedule::validate`].
    pub fn most_gathered(&self, request: &ShardingRequest) -> Result<usize> {
        form::check(self, request)?;
        let mut walk = Walk::new(self, request);
        walk.step(3)?;
        Ok(walk.most_gathered())
    }

    fn check_order(&self, request: &ShardingRequest) -> Result<()> {
        let units = request.units.len();
        let order = |act| -> Vec<usize> {
            let of_act = self.micro_batch.iter().filter(|action| action.act == act);
            of_act.map(|action| action.unit).collect()
        };
        let (forward, backward) = (order(Act::Forward), order(Act::Backward));
        if !forward.iter().copied().eq(0..units) {
            return Err(wrong(format_args!(
                "forward order {forward:?}, expected each of {units} units once"
            )));
        }
        if !backward
            .iter()
            .copied()
            .eq((0..units.saturating_sub(1)).rev())
        {
            return Err(wrong(format_args!(
                "backward order {backward:?}, expected the units before the head"
            )));
        }
        let is_pass = |act| matches!(act, Act::Forward | Act::Backward);
        let mut passes = self.micro_batch.iter().filter(|one| is_pass(one.act));
        if passes
            .by_ref()
            .take(units)
            .any(|one| one.act == Act::Backward)
        {
            Err(wrong(
                "a backward pass before the head's: expected it later",
            ))
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests;
