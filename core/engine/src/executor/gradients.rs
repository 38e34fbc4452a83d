//! Gradients before the update: set to zero, and their norm.

use espalier_interface::BufferRange;
use espalier_interface::schedule::Act;
use espalier_plan::step_plan::{Region, RegionKind, Task};
use espalier_plan::storage_layout::StateKind;

use super::Executor;
use crate::error::Result;

impl Executor {
    /// Sets the gradients of a unit that a task begins to zero.
    pub(super) fn zero_unit(&self, task: &Task, unit: usize) -> Result<()> {
        let Some(kernels) = &self.prepared.trained[unit] else {
            return Ok(());
        };
        let range = self.gradients_of(unit, task.region(unit, RegionKind::Gradients));
        self.launch_flat(&kernels.zero, &[range], &[])
    }

    /// The gradients of a unit: in a region, or where this rank keeps them.
    fn gradients_of(&self, unit: usize, region: Option<Region>) -> BufferRange {
        match region {
            Some(region) => self.storage.region(region.offset, region.bytes),
            None => self.storage.kept(unit, StateKind::Gradients),
        }
    }

    /// Sets the gradients that have memory of their own to zero. Others are zeroed in a step's
    /// first micro-batch.
    ///
    /// # Errors
    /// `Error::Plugin`: a call to the backend failed.
    pub fn zero_gradients(&self) -> Result<()> {
        let Some(zero) = &self.prepared.zero_whole else {
            return Ok(());
        };
        // Another lane has gradients only to reduce them, and a unit that is reduced is counted in
        // the norm: the compute lane has waited for it.
        self.launch_flat(zero, &[self.storage.whole_gradients()], &[])?;
        // A rank without tokens reduces the zeros themselves: none of its passes is between.
        let mut tasks = self.step_plan.micro_batch.iter();
        if tasks.any(|task| task.action.act == Act::Reduce) {
            self.behind.fall(self.streams.len());
        }
        Ok(())
    }

    /// Adds up the squares of the gradients of a unit that this rank keeps.
    pub(super) fn sum_squares(&self, unit: usize, region: Option<Region>) -> Result<()> {
        let Some(kernels) = &self.prepared.trained[unit] else {
            return Ok(());
        };
        let gradients = self.gradients_of(unit, region);
        let ranges = [gradients, self.storage.unit_result(unit)];
        self.launch_flat(&kernels.sum_squares, &ranges, &[])
    }

    /// For each unit the sum of squares of the gradients that this rank keeps: all of them, or its
    /// part where they are cut.
    ///
    /// # Errors
    /// `Error::Plugin`: a call to the backend failed.
    pub fn gradient_squares(&self) -> Result<Vec<f64>> {
        let mut tasks = self.step_plan.micro_batch.iter();
        let added_up = tasks.any(|task| task.action.act == Act::Norm);
        let trained = |unit: usize| self.prepared.trained[unit].is_some();
        let units = 0..self.program.units.len();
        // Without a norm in the schedule nothing is reduced: no other lane has gradients.
        if !added_up {
            units
                .clone()
                .try_for_each(|unit| self.sum_squares(unit, None))?;
        }
        if !units.clone().any(trained) {
            return Ok(vec![0.0; units.len()]);
        }
        let results = self.storage.unit_results();
        let mut bytes = vec![0; results.bytes as usize];
        self.download_result(results, &mut bytes)?;
        let sum = |unit: usize| {
            let at = (self.storage.unit_result(unit).offset - results.offset) as usize;
            f64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
        };
        Ok(units
            .map(|unit| if trained(unit) { sum(unit) } else { 0.0 })
            .collect())
    }

    /// The norm of all gradients, from every rank's sums of squares. 0 where nothing is trained.
    pub fn gradient_norm(&self, squares: &[&[f64]]) -> f64 {
        let units = 0..self.program.units.len();
        let of_units = units.map(|unit| self.unit_squares(unit, squares));
        of_units.sum::<f64>().sqrt()
    }

    /// The sum of squares of a unit's gradients, from every rank's sums of squares.
    fn unit_squares(&self, unit: usize, squares: &[&[f64]]) -> f64 {
        let parts = self.shard_layout.parts as usize;
        if self.shard_layout.is_cut(unit) {
            squares.iter().take(parts).map(|rank| rank[unit]).sum()
        } else {
            squares[0][unit]
        }
    }

    /// The first unit of the backward pass whose gradients are not finite, by every rank's sums of
    /// squares.
    pub fn gradients_not_finite(&self, squares: &[&[f64]]) -> Option<&str> {
        let mut units = (0..self.program.units.len()).rev();
        let found = units.find(|&unit| !self.unit_squares(unit, squares).is_finite());
        found.map(|unit| self.program.units[unit].name.as_str())
    }
}
