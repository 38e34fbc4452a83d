//! The acts of a micro-batch: the state that each requires, and the state that it leaves.

use super::update::lost;
use super::{Found, Gradients, ParamsOnDevice, Saved, UnitState, Walk};
use crate::schedule::{Act, Action, Part, Place};

impl Walk<'_> {
    pub(super) fn in_micro_batch(&mut self, action: &Action) -> Found {
        let unit = action.unit;
        match action.act {
            Act::Forward | Act::Backward => return self.pass(action),
            Act::Reduce => return self.reduce(unit),
            Act::Norm => return self.norm(unit),
            Act::Optimize => return self.optimize_in_backward(unit),
            _ => {}
        }
        for &part in &action.parts {
            let brings = matches!(action.act, Act::Fetch | Act::Gather);
            if brings && part == Part::Trainable && self.units[unit].updated {
                return Err("brings params that were updated: expected it earlier".to_owned());
            }
            if self.moved_for_update(action.act, unit, part)? {
                continue;
            }
            match (action.act, part) {
                (_, Part::Saved) => self.move_saved(action.act, unit)?,
                (Act::Fetch, Part::Frozen | Part::Trainable) => self.fetch_weights(unit, part)?,
                (Act::Gather, _) => self.gather(unit, part)?,
                (Act::Release, Part::Frozen | Part::Trainable) => self.release(unit, part)?,
                (Act::Offload, Part::Gradients) => self.offload_gradients(unit)?,
                (Act::Release, Part::Gradients) if self.request.update_in_backward => {
                    self.release_gradients(unit)?;
                }
                (Act::Offload, Part::Frozen | Part::Trainable) => {
                    return Err(format!(
                        "{part:?} bytes are as they were: expected `release`"
                    ));
                }
                (act, part) => {
                    return Err(format!(
                        "{act:?} of {part:?} belongs into `update`, found in `micro_batch`"
                    ));
                }
            }
        }
        Ok(())
    }

    fn pass(&mut self, action: &Action) -> Found {
        let pass = self.request.pass(action.act, action.unit);
        for &unit in pass.reads {
            if self.units[unit].updated {
                return Err(format!("it reads unit {unit}, which was updated before"));
            }
            for part in [Part::Frozen, Part::Trainable] {
                if !self.is_there(unit, part) {
                    return Err(format!(
                        "it reads unit {unit}, and its bytes are not there: {part:?} is {:?}",
                        self.weights(unit, part).0
                    ));
                }
            }
            let adds = self.request.trains(unit) && pass.makes_gradients;
            if adds && self.units[unit].gradients != Gradients::Adding {
                return Err(format!(
                    "adds to gradients of unit {unit}, which are reduced or counted already"
                ));
            }
        }
        let head = pass.makes_gradients && pass.act == Act::Forward;
        let saves = self.request.units[pass.unit].saved > 0 && !head;
        let saved = &mut self.units[pass.unit].saved;
        match (pass.act, *saved) {
            _ if !saves => {}
            (Act::Forward, _) => *saved = Saved::Here,
            (_, Saved::Here) => *saved = Saved::Nothing,
            (_, Saved::Fetched) => {}
            (_, Saved::Nothing | Saved::OnHost) => {
                return Err("its saved activations are not there".to_owned());
            }
        }
        Ok(())
    }

    pub(super) fn fetch_weights(&mut self, unit: usize, part: Part) -> Found {
        let (place, held) = self.weights(unit, part);
        let brings = match place {
            Place::Host => ParamsOnDevice::Whole,
            Place::ShardedOnHost => ParamsOnDevice::Part,
            Place::Replicated | Place::Sharded => {
                return Err(format!("{part:?} bytes are {place:?}, not on the host"));
            }
        };
        if held != ParamsOnDevice::Nothing {
            return Err(format!("{part:?} bytes were fetched already"));
        }
        self.hold(unit, part, brings);
        Ok(())
    }

    fn gather(&mut self, unit: usize, part: Part) -> Found {
        match self.weights(unit, part) {
            (Place::Sharded, ParamsOnDevice::Nothing)
            | (Place::ShardedOnHost, ParamsOnDevice::Part) => {
                self.hold(unit, part, ParamsOnDevice::Whole);
                Ok(())
            }
            (Place::ShardedOnHost, ParamsOnDevice::Nothing) => Err(format!(
                "this rank's part of the {part:?} bytes was not fetched"
            )),
            (Place::Replicated | Place::Host, _) => Err(format!(
                "{part:?} bytes are not cut: nothing is to be gathered"
            )),
            (_, ParamsOnDevice::ForUpdate) => Err(format!(
                "{part:?} bytes were fetched for their update, which no pass reads"
            )),
            (_, _) => Err(format!("{part:?} bytes were gathered already")),
        }
    }

    fn release(&mut self, unit: usize, part: Part) -> Found {
        match self.weights(unit, part).1 {
            ParamsOnDevice::Nothing => Err(format!("{part:?} bytes are not there to be released")),
            ParamsOnDevice::ForUpdate => Err(lost(part)),
            _ => {
                self.hold(unit, part, ParamsOnDevice::Nothing);
                Ok(())
            }
        }
    }

    fn reduce(&mut self, unit: usize) -> Found {
        if !self.request.trains(unit) {
            return Err("the unit has nothing to train".to_owned());
        }
        let gradients = &mut self.units[unit].gradients;
        if *gradients != Gradients::Adding {
            return Err("its gradients were reduced or counted already".to_owned());
        }
        *gradients = Gradients::Reduced;
        Ok(())
    }

    fn norm(&mut self, unit: usize) -> Found {
        if !self.request.trains(unit) {
            return Err("the unit has nothing to train".to_owned());
        }
        let must_reduce = self.must_reduce(unit);
        let gradients = &mut self.units[unit].gradients;
        match *gradients {
            Gradients::Reduced => {}
            Gradients::Adding if !must_reduce => {}
            Gradients::Adding => return Err("its gradients are not reduced yet".to_owned()),
            _ => return Err("it is in the norm already".to_owned()),
        }
        *gradients = Gradients::Counted;
        Ok(())
    }

    fn offload_gradients(&mut self, unit: usize) -> Found {
        let place = self.place(unit).optimizer;
        let gradients = &mut self.units[unit].gradients;
        match (place, *gradients) {
            (Place::ShardedOnHost, Gradients::Counted) => *gradients = Gradients::OnHost,
            (Place::ShardedOnHost, _) => {
                return Err("its gradients are not reduced and counted in the norm".to_owned());
            }
            (place, _) => return Err(format!("its gradients are {place:?}, not on the host")),
        }
        Ok(())
    }

    fn move_saved(&mut self, act: Act, unit: usize) -> Found {
        let saved = &mut self.units[unit].saved;
        *saved = match (act, *saved) {
            (Act::Offload, Saved::Here) => Saved::OnHost,
            (Act::Fetch, Saved::OnHost) => Saved::Fetched,
            (Act::Release, Saved::Fetched) => Saved::Nothing,
            (_, found) => return Err(format!("its saved activations are {found:?}")),
        };
        Ok(())
    }

    pub(super) fn end_micro_batch(&self) -> Found {
        let left = |one: &UnitState| one.saved != Saved::Nothing;
        match self.units.iter().position(left) {
            Some(unit) => Err(format!(
                "the saved activations of unit {unit} outlive their micro-batch: expected `release`"
            )),
            None => Ok(()),
        }
    }

    /// Checks the end of the micro-batches: all bytes are where they are kept, and gradients are
    /// ready for the update.
    pub(super) fn end_micro_batches(&self) -> Found {
        for unit in 0..self.units.len() {
            for part in [Part::Frozen, Part::Trainable] {
                if self.weights(unit, part).1 != ParamsOnDevice::Nothing {
                    return Err(format!("{part:?} bytes of unit {unit} are never released"));
                }
            }
        }
        if self.request.update_in_backward {
            return self.end_backward_updates();
        }
        let mut counted = 0;
        for (unit, state) in self.units.iter().enumerate() {
            counted += usize::from(state.gradients == Gradients::Counted);
            if !self.must_reduce(unit) {
                continue;
            }
            let on_host = self.place(unit).optimizer == Place::ShardedOnHost;
            match (state.gradients, on_host) {
                (Gradients::Adding, _) => return Err(format!("unit {unit} is never reduced")),
                (Gradients::Reduced, _) => {
                    return Err(format!(
                        "unit {unit} is reduced and not counted in the norm"
                    ));
                }
                (Gradients::Counted, true) => {
                    return Err(format!("the gradients of unit {unit} are never offloaded"));
                }
                _ => {}
            }
        }
        let trained = self.request.trained();
        let free = trained.filter(|&unit| !self.must_reduce(unit)).count();
        let forced = self
            .units
            .iter()
            .filter(|one| one.gradients == Gradients::OnHost);
        match (
            free,
            counted + forced.count(),
            self.request.trained().count(),
        ) {
            (1.., found @ 1.., all) if found != all => Err(format!(
                "the norm counts {found} of {all} trained units: expected all or none"
            )),
            _ => Ok(()),
        }
    }
}
