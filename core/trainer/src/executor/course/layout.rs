//! Actions in their order -> regions that open and close, what waits for what, and a place for each region.

use std::collections::{BTreeMap, BTreeSet};

use espalier_interface::schedule::{
    Act, Action, Part, Place, Placement, Schedule, ShardingRequest, When,
};
use espalier_interface::{PluginError, Result};

use super::{Course, Held, Lane, Leg, Region, RegionSizes};
use crate::arena::{Lifetime, aligned, pack};

/// A region that is open.
struct Open {
    region: usize,
    /// Legs that have written or read it.
    users: BTreeSet<usize>,
    /// The last leg that filled it.
    filled: usize,
}

/// A region that was opened.
struct Opened {
    unit: usize,
    held: Held,
    life: Lifetime,
    /// Whether it lasts from micro-batch to micro-batch.
    lasts: bool,
    users: BTreeSet<usize>,
}

/// A leg before regions have places.
struct Draft {
    action: Action,
    regions: Vec<usize>,
    after: BTreeSet<usize>,
    begins: Vec<(usize, When)>,
}

/// A schedule on its way to a course.
pub(super) struct Layout<'a> {
    schedule: &'a Schedule,
    request: &'a ShardingRequest,
    sizes: &'a [RegionSizes],
    /// Legs of a micro-batch; those of the update follow.
    split: usize,
    legs: Vec<Draft>,
    open: BTreeMap<(usize, Held), Open>,
    opened: Vec<Opened>,
}

impl<'a> Layout<'a> {
    /// Nothing of the schedule so far.
    pub fn new(
        schedule: &'a Schedule,
        request: &'a ShardingRequest,
        sizes: &'a [RegionSizes],
    ) -> Self {
        Layout {
            schedule,
            request,
            sizes,
            split: schedule.micro_batch.len(),
            legs: Vec::new(),
            open: BTreeMap::new(),
            opened: Vec::new(),
        }
    }

    /// The course.
    ///
    /// # Errors
    /// As [`Course::of`].
    pub fn laid_out(mut self) -> Result<Course> {
        for action in &self.schedule.micro_batch {
            self.step_leg(action)?;
        }
        self.close_all();
        for action in &self.schedule.update {
            self.update_leg(action)?;
        }
        self.close_all();
        self.one_lane_for_collectives()?;
        Ok(self.finish())
    }

    fn place(&self, unit: usize) -> Placement {
        self.schedule.placements[unit]
    }

    fn is_cut(&self, unit: usize) -> bool {
        self.place(unit).optimizer != Place::Replicated
    }

    fn trains(&self, unit: usize) -> bool {
        self.request.units[unit].trainable > 0
    }

    fn begin(&mut self, action: &Action) -> usize {
        let offset = if self.legs.len() < self.split {
            0
        } else {
            self.split
        };
        self.legs.push(Draft {
            action: action.clone(),
            regions: Vec::new(),
            after: action.after.iter().map(|leg| leg + offset).collect(),
            begins: Vec::new(),
        });
        self.legs.len() - 1
    }

    /// Opens a region that the leg fills; one of no bytes is left out.
    fn open(&mut self, leg: usize, unit: usize, held: Held) {
        let bytes = self.sizes[unit].of(held);
        if bytes == 0 {
            return;
        }
        self.opened.push(Opened {
            unit,
            held,
            life: Lifetime {
                bytes,
                first: leg,
                last: leg,
            },
            lasts: false,
            users: BTreeSet::from([leg]),
        });
        let region = self.opened.len() - 1;
        self.legs[leg].regions.push(region);
        let open = Open {
            region,
            users: BTreeSet::from([leg]),
            filled: leg,
        };
        self.open.insert((unit, held), open);
    }

    /// The leg works on a region that is open; `fills` says that later ones need what it makes.
    fn work_on(&mut self, leg: usize, unit: usize, held: Held, fills: bool) -> Result<()> {
        if self.sizes[unit].of(held) == 0 {
            return Ok(());
        }
        let Some(open) = self.open.get_mut(&(unit, held)) else {
            let action = &self.legs[leg].action;
            return Err(PluginError::invalid(format!(
                "schedule: action {leg} ({:?} of unit {}) works on the {held:?} bytes of unit {unit}, which nothing has \
                 brought",
                action.act, action.unit
            )));
        };
        if fills {
            self.legs[leg].after.extend(&open.users);
            open.filled = leg;
        } else {
            self.legs[leg].after.insert(open.filled);
        }
        open.users.insert(leg);
        if !self.legs[leg].regions.contains(&open.region) {
            self.legs[leg].regions.push(open.region);
        }
        Ok(())
    }

    /// The leg is the last to use a region.
    fn close(&mut self, leg: usize, unit: usize, held: Held) {
        let Some(open) = self.open.remove(&(unit, held)) else {
            return;
        };
        let after: Vec<usize> = open
            .users
            .iter()
            .copied()
            .filter(|&user| user != leg)
            .collect();
        self.legs[leg].after.extend(after);
        let opener = self.opened[open.region].life.first;
        let opened = &mut self.opened[open.region];
        opened.users.extend(&open.users);
        opened.users.insert(leg);
        opened.life.last = leg;
        opened.lasts |= self.legs[opener].action.when != self.legs[leg].action.when;
    }

    /// What is never closed lasts.
    fn close_all(&mut self) {
        let Some(last) = self.legs.len().checked_sub(1) else {
            return;
        };
        let open = std::mem::take(&mut self.open);
        for open in open.into_values() {
            let opened = &mut self.opened[open.region];
            opened.users.extend(&open.users);
            opened.life.last = last;
            opened.lasts = true;
        }
    }

    fn step_leg(&mut self, action: &Action) -> Result<()> {
        let unit = action.unit;
        let place = self.place(unit);
        let leg = self.begin(action);
        match action.act {
            Act::Fetch => {
                for part in &action.parts {
                    match part {
                        Part::Frozen => self.open(leg, unit, Held::Frozen),
                        Part::Trainable => self.open(leg, unit, Held::Trainable),
                        Part::Saved => self.open(leg, unit, Held::Saved),
                        Part::Gradients | Part::Optimizer => {}
                    }
                }
            }
            Act::Gather => {
                for (part, held, from) in [
                    (Part::Frozen, Held::Frozen, place.frozen),
                    (Part::Trainable, Held::Trainable, place.trainable),
                ] {
                    if !action.parts.contains(&part) {
                        continue;
                    }
                    match from {
                        Place::ShardedOnHost => self.work_on(leg, unit, held, true)?,
                        _ => self.open(leg, unit, held),
                    }
                }
            }
            Act::Forward | Act::Backward => self.compute(leg, action)?,
            Act::Release => {
                for part in &action.parts {
                    match part {
                        Part::Frozen => self.close(leg, unit, Held::Frozen),
                        Part::Trainable => self.close(leg, unit, Held::Trainable),
                        Part::Saved => self.close(leg, unit, Held::Saved),
                        Part::Gradients => self.close(leg, unit, Held::Reduced),
                        Part::Optimizer => {}
                    }
                }
            }
            Act::Reduce => self.reduce(leg, action)?,
            Act::Norm => {
                if place.optimizer == Place::ShardedOnHost {
                    self.work_on(leg, unit, Held::Reduced, false)?;
                } else if let Some(reduce) = self.reduced_by(unit) {
                    self.legs[leg].after.insert(reduce);
                }
            }
            Act::Offload => {
                for part in &action.parts {
                    match part {
                        Part::Gradients => {
                            self.work_on(leg, unit, Held::Reduced, false)?;
                            self.close(leg, unit, Held::Reduced);
                        }
                        Part::Saved => {
                            self.work_on(leg, unit, Held::Saved, false)?;
                            self.close(leg, unit, Held::Saved);
                        }
                        _ => {}
                    }
                }
            }
            Act::Optimize => {}
        }
        Ok(())
    }

    fn compute(&mut self, leg: usize, action: &Action) -> Result<()> {
        let forward = action.act == Act::Forward;
        let of_unit = &self.request.units[action.unit];
        let reads = match forward {
            true => of_unit.forward_reads.clone(),
            false => of_unit.backward_reads.clone(),
        };
        self.saved(leg, action)?;
        let has_gradients = !forward || action.unit + 1 == self.request.units.len();
        for unit in reads {
            let place = self.place(unit);
            if place.frozen != Place::Replicated {
                self.work_on(leg, unit, Held::Frozen, false)?;
            }
            if place.trainable != Place::Replicated {
                self.work_on(leg, unit, Held::Trainable, false)?;
            }
            if has_gradients && self.trains(unit) && self.is_cut(unit) {
                match self.open.contains_key(&(unit, Held::Gradients)) {
                    true => self.work_on(leg, unit, Held::Gradients, true)?,
                    false => {
                        self.open(leg, unit, Held::Gradients);
                        let when = self.gradients_begin();
                        self.legs[leg].begins.push((unit, when));
                    }
                }
            }
        }
        Ok(())
    }

    /// Blocks of saved activations that leave the device: a unit's input, which the unit before it makes, and what it saves.
    fn saved(&mut self, leg: usize, action: &Action) -> Result<()> {
        let forward = action.act == Act::Forward;
        let mut blocks = vec![action.unit];
        if forward && action.unit + 1 < self.sizes.len() {
            blocks.push(action.unit + 1);
        }
        for unit in blocks {
            if self.sizes[unit].saved == 0 {
                continue;
            }
            match forward && !self.open.contains_key(&(unit, Held::Saved)) {
                true => self.open(leg, unit, Held::Saved),
                false => self.work_on(leg, unit, Held::Saved, true)?,
            }
        }
        Ok(())
    }

    /// In which micro-batches a unit's gradients begin from zero: in the first, where those of several are summed.
    fn gradients_begin(&self) -> When {
        match self.request.micro_batches {
            1 => When::Every,
            _ => When::First,
        }
    }

    fn reduce(&mut self, leg: usize, action: &Action) -> Result<()> {
        let unit = action.unit;
        if !self.trains(unit) {
            return Ok(());
        }
        if action.when != When::Last && self.request.micro_batches != 1 {
            return Err(PluginError::unsupported(format!(
                "schedule: unit {unit} is reduced in {:?} micro-batch; gradients are summed over a step's micro-batches first: \
                 expected `last`",
                action.when
            )));
        }
        self.open(leg, unit, Held::Wire);
        self.close(leg, unit, Held::Wire);
        if !self.is_cut(unit) {
            let backward: Vec<usize> = (0..leg)
                .filter(|&at| self.makes_gradients(at, unit))
                .collect();
            self.legs[leg].after.extend(backward);
            return Ok(());
        }
        self.work_on(leg, unit, Held::Gradients, false)?;
        let begins = self.gradients_begin();
        let region = self.open[&(unit, Held::Gradients)].region;
        self.close(leg, unit, Held::Gradients);
        self.opened[region].lasts = begins == When::First;
        if self.place(unit).optimizer == Place::ShardedOnHost {
            self.open(leg, unit, Held::Reduced);
        }
        Ok(())
    }

    /// Whether leg `at` adds to gradients of `unit`.
    fn makes_gradients(&self, at: usize, unit: usize) -> bool {
        let action = &self.legs[at].action;
        let of_unit = &self.request.units[action.unit];
        match action.act {
            Act::Backward => of_unit.backward_reads.contains(&unit),
            Act::Forward => {
                action.unit + 1 == self.request.units.len() && of_unit.forward_reads.contains(&unit)
            }
            _ => false,
        }
    }

    /// The leg that reduced a unit's gradients.
    fn reduced_by(&self, unit: usize) -> Option<usize> {
        self.legs
            .iter()
            .rposition(|leg| leg.action.act == Act::Reduce && leg.action.unit == unit)
    }

    fn update_leg(&mut self, action: &Action) -> Result<()> {
        let unit = action.unit;
        let place = self.place(unit);
        let leg = self.begin(action);
        let held = |part: &Part| match part {
            Part::Trainable => Some(Held::Values),
            Part::Gradients => Some(Held::Reduced),
            Part::Optimizer => Some(Held::Moments),
            Part::Frozen | Part::Saved => None,
        };
        match action.act {
            Act::Fetch => {
                for held in action.parts.iter().filter_map(held) {
                    self.open(leg, unit, held);
                }
            }
            Act::Optimize => {
                if place.trainable == Place::ShardedOnHost {
                    self.work_on(leg, unit, Held::Values, true)?;
                }
                if place.optimizer == Place::ShardedOnHost {
                    self.work_on(leg, unit, Held::Reduced, false)?;
                    self.work_on(leg, unit, Held::Moments, true)?;
                }
            }
            Act::Offload => {
                for held in action.parts.iter().filter_map(held) {
                    self.work_on(leg, unit, held, false)?;
                    self.close(leg, unit, held);
                }
            }
            Act::Release => {
                for held in action.parts.iter().filter_map(held) {
                    self.close(leg, unit, held);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Calls of collectives are made in one order by all ranks: by one lane.
    fn one_lane_for_collectives(&self) -> Result<()> {
        let calls = self.legs.iter().map(|leg| &leg.action);
        let lanes: BTreeSet<Lane> = calls
            .filter(|action| matches!(action.act, Act::Gather | Act::Reduce))
            .map(lane_of)
            .collect();
        match lanes.len() > 1 {
            true => Err(PluginError::invalid(
                "schedule: some gathers and reductions are on stream 0, others are not: all ranks must make them in one \
                 order, so all belong on one side",
            )),
            false => Ok(()),
        }
    }

    /// Gives regions their places and legs what they wait for.
    fn finish(mut self) -> Course {
        let split = self.split;
        let lives: Vec<Lifetime> = self
            .opened
            .iter()
            .map(|opened| match opened.lasts {
                true if opened.life.first < split => Lifetime {
                    first: 0,
                    last: split.saturating_sub(1),
                    ..opened.life
                },
                true => Lifetime {
                    first: split,
                    last: self.legs.len() - 1,
                    ..opened.life
                },
                false => opened.life,
            })
            .collect();
        let (offsets, region_bytes) = pack(&lives);
        let end = |at: usize| offsets[at] + aligned(lives[at].bytes);
        for (at, opened) in self.opened.iter().enumerate() {
            for (other, earlier) in self.opened.iter().enumerate() {
                let apart = end(at) <= offsets[other] || end(other) <= offsets[at];
                if other != at && !apart && lives[other].last < lives[at].first {
                    self.legs[opened.life.first].after.extend(&earlier.users);
                }
            }
        }
        let lanes: Vec<Lane> = self.legs.iter().map(|leg| lane_of(&leg.action)).collect();
        let opened = &self.opened;
        let mut legs = self.legs.into_iter().enumerate().map(|(index, draft)| {
            let begin = if index < split { 0 } else { split };
            let others = draft.after.iter().copied();
            let others =
                others.filter(|&leg| leg >= begin && leg < index && lanes[leg] != lanes[index]);
            Leg {
                waits: others.max().map(|leg| leg - begin),
                lane: lanes[index],
                regions: draft
                    .regions
                    .iter()
                    .map(|&at| Region {
                        unit: opened[at].unit,
                        held: opened[at].held,
                        offset: offsets[at],
                        bytes: opened[at].life.bytes,
                    })
                    .collect(),
                begins: draft.begins,
                action: draft.action,
            }
        });
        let micro_batch: Vec<Leg> = legs.by_ref().take(split).collect();
        let update = legs.collect();
        Course {
            micro_batch,
            update,
            region_bytes,
        }
    }
}

fn lane_of(action: &Action) -> Lane {
    match action.stream {
        0 => Lane::Compute,
        _ => Lane::Move,
    }
}
