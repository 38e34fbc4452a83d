//! An action of a micro-batch -> a task, with the regions that it opens, works on and closes.

use espalier_interface::schedule::{Act, Action, Part, Place, When};
use espalier_interface::{PluginError, Result};

use super::Layout;
use crate::step_plan::RegionKind;

impl Layout<'_> {
    pub(super) fn add_micro_batch_task(&mut self, action: &Action) -> Result<()> {
        let unit = action.unit;
        let place = self.place(unit);
        let task = self.begin(action);
        match action.act {
            Act::Fetch => {
                let values = if self.is_whole(task, unit) {
                    RegionKind::Values
                } else {
                    RegionKind::Trainable
                };
                for part in &action.parts {
                    match part {
                        Part::Frozen => self.open(task, unit, RegionKind::Frozen),
                        Part::Trainable => self.open(task, unit, values),
                        Part::Saved => self.open(task, unit, RegionKind::Saved),
                        Part::Optimizer => self.open(task, unit, RegionKind::State),
                        Part::Gradients => {}
                    }
                }
            }
            Act::Gather => {
                for (part, kind, from) in [
                    (Part::Frozen, RegionKind::Frozen, place.frozen),
                    (Part::Trainable, RegionKind::Trainable, place.trainable),
                ] {
                    if !action.parts.contains(&part) {
                        continue;
                    }
                    match from {
                        Place::ShardedOnHost => self.fill(task, unit, kind)?,
                        _ => self.open(task, unit, kind),
                    }
                }
            }
            Act::Forward | Act::Backward => self.compute(task, action)?,
            Act::Release => {
                for part in &action.parts {
                    match part {
                        Part::Frozen => self.close(task, unit, RegionKind::Frozen),
                        Part::Trainable => self.close(task, unit, RegionKind::Trainable),
                        Part::Saved => self.close(task, unit, RegionKind::Saved),
                        Part::Gradients => self.release_gradients(task, unit),
                        Part::Optimizer => {}
                    }
                }
            }
            Act::Reduce => self.reduce(task, action)?,
            Act::Norm => {
                if let Some(kind) = self.kept_in(unit) {
                    self.read(task, unit, kind)?;
                } else if let Some(reduce) = self.reduced_by(unit) {
                    self.tasks[task].after.insert(reduce);
                }
            }
            Act::Offload => {
                for part in &action.parts {
                    let kind = match part {
                        Part::Gradients => RegionKind::Reduced,
                        Part::Saved => RegionKind::Saved,
                        Part::Trainable => RegionKind::Values,
                        Part::Optimizer => RegionKind::State,
                        Part::Frozen => continue,
                    };
                    self.read(task, unit, kind)?;
                    self.close(task, unit, kind);
                }
            }
            Act::Optimize => self.update_in_backward(task, unit)?,
        }
        Ok(())
    }

    /// The region of a unit's reduced gradients; none where they have a separate buffer.
    fn kept_in(&self, unit: usize) -> Option<RegionKind> {
        match self.place(unit).optimizer {
            Place::ShardedOnHost => Some(RegionKind::Reduced),
            _ if !self.request.update_in_backward => None,
            Place::Replicated => Some(RegionKind::Gradients),
            _ => Some(RegionKind::Reduced),
        }
    }

    /// Whether a unit's gradients are whole before a task, in a step that updates in the backward
    /// pass: what is fetched from there on is for the update.
    fn is_whole(&self, task: usize, unit: usize) -> bool {
        let sums =
            |action: &Action| matches!(action.act, Act::Reduce | Act::Norm) && action.unit == unit;
        let mut earlier = self.tasks[..task].iter();
        self.request.update_in_backward && earlier.any(|one| sums(&one.action))
    }

    /// The update changes what earlier tasks of other lanes copy or gather.
    fn update_in_backward(&mut self, task: usize, unit: usize) -> Result<()> {
        if let Some(kind) = self.kept_in(unit) {
            self.read(task, unit, kind)?;
        }
        let place = self.place(unit);
        if place.trainable == Place::ShardedOnHost {
            self.fill(task, unit, RegionKind::Values)?;
        }
        if place.optimizer == Place::ShardedOnHost {
            self.fill(task, unit, RegionKind::State)?;
        }
        let brings = |action: &Action| {
            matches!(action.act, Act::Fetch | Act::Gather)
                && action.unit == unit
                && action.parts.contains(&Part::Trainable)
        };
        let earlier = (0..task).filter(|&at| brings(&self.tasks[at].action));
        let earlier: Vec<usize> = earlier.collect();
        self.tasks[task].after.extend(earlier);
        Ok(())
    }

    fn release_gradients(&mut self, task: usize, unit: usize) {
        self.close(task, unit, RegionKind::Reduced);
        self.close_gradients(task, unit);
    }

    /// Closes the region of a unit's gradients, which lasts where several micro-batches add to it.
    fn close_gradients(&mut self, task: usize, unit: usize) {
        let open = self.open.get(&(unit, RegionKind::Gradients));
        let Some(region) = open.map(|open| open.region) else {
            return;
        };
        self.close(task, unit, RegionKind::Gradients);
        self.lives[region].lasts = self.gradients_begin() == When::First;
    }

    fn compute(&mut self, task: usize, action: &Action) -> Result<()> {
        let forward = action.act == Act::Forward;
        let of_unit = &self.request.units[action.unit];
        let reads = if forward {
            of_unit.forward_reads.clone()
        } else {
            of_unit.backward_reads.clone()
        };
        self.saved(task, action)?;
        let has_gradients = !forward || action.unit + 1 == self.request.units.len();
        for unit in reads {
            let place = self.place(unit);
            if place.frozen != Place::Replicated {
                self.read(task, unit, RegionKind::Frozen)?;
            }
            if place.trainable != Place::Replicated {
                self.read(task, unit, RegionKind::Trainable)?;
            }
            if has_gradients && self.brings_gradients(unit) {
                if self.open.contains_key(&(unit, RegionKind::Gradients)) {
                    self.fill(task, unit, RegionKind::Gradients)?
                } else {
                    self.open(task, unit, RegionKind::Gradients);
                    let when = self.gradients_begin();
                    self.tasks[task].begins.push((unit, when));
                }
            }
        }
        Ok(())
    }

    /// Uses the blocks of saved activations that leave the device: the unit's own block. In a
    /// forward pass it also uses the next unit's, which holds this unit's output.
    fn saved(&mut self, task: usize, action: &Action) -> Result<()> {
        let forward = action.act == Act::Forward;
        let mut blocks = vec![action.unit];
        if forward && action.unit + 1 < self.sizes.len() {
            blocks.push(action.unit + 1);
        }
        for unit in blocks {
            if self.sizes[unit].saved == 0 {
                continue;
            }
            if forward && !self.open.contains_key(&(unit, RegionKind::Saved)) {
                self.open(task, unit, RegionKind::Saved)
            } else {
                self.fill(task, unit, RegionKind::Saved)?
            }
        }
        Ok(())
    }

    /// The sweeps in which a unit's gradients start from zero: the first, where those of several
    /// are summed.
    fn gradients_begin(&self) -> When {
        if self.is_one_sweep() {
            When::Every
        } else {
            When::First
        }
    }

    fn reduce(&mut self, task: usize, action: &Action) -> Result<()> {
        let unit = action.unit;
        if !self.trains(unit) {
            return Ok(());
        }
        if action.when != When::Last && !self.is_one_sweep() {
            return Err(PluginError::unsupported(format!(
                "schedule: unit {unit} is reduced in {:?} micro-batch; gradients are summed over a step's micro-batches first: \
                 expected `last`",
                action.when
            )));
        }
        self.open(task, unit, RegionKind::Wire);
        self.close(task, unit, RegionKind::Wire);
        if !self.is_cut(unit) && self.request.update_in_backward {
            return self.fill(task, unit, RegionKind::Gradients);
        }
        if !self.is_cut(unit) {
            let backward: Vec<usize> = (0..task)
                .filter(|&at| self.makes_gradients(at, unit))
                .collect();
            self.tasks[task].after.extend(backward);
            return Ok(());
        }
        self.read(task, unit, RegionKind::Gradients)?;
        self.close_gradients(task, unit);
        if self.kept_in(unit) == Some(RegionKind::Reduced) {
            self.open(task, unit, RegionKind::Reduced);
        }
        Ok(())
    }

    /// Whether task `at` adds to gradients of `unit`.
    fn makes_gradients(&self, at: usize, unit: usize) -> bool {
        let action = &self.tasks[at].action;
        let of_unit = &self.request.units[action.unit];
        match action.act {
            Act::Backward => of_unit.backward_reads.contains(&unit),
            Act::Forward => {
                action.unit + 1 == self.request.units.len() && of_unit.forward_reads.contains(&unit)
            }
            _ => false,
        }
    }

    /// The last task that reduced a unit's gradients.
    fn reduced_by(&self, unit: usize) -> Option<usize> {
        self.tasks
            .iter()
            .rposition(|task| task.action.act == Act::Reduce && task.action.unit == unit)
    }
}
