//! Actions in their order -> regions that open and close, what waits for what, and a place for each region.

use std::collections::{BTreeMap, BTreeSet};

use espalier_compile::arena::{Lifetime, aligned, pack};
use espalier_interface::schedule::{
    Act, Action, Part, Place, Placement, Schedule, ShardingRequest, When,
};
use espalier_interface::{PluginError, Result};

use super::{Lane, Region, RegionKind, RegionSizes, StepPlan, Task};

/// A region that is open.
struct Open {
    region: usize,
    /// Legs that have written or read it.
    users: BTreeSet<usize>,
    /// The last task that filled it.
    filled: usize,
}

/// A region that was opened.
struct Opened {
    unit: usize,
    held: RegionKind,
    life: Lifetime,
    /// Whether it lasts from micro-batch to micro-batch.
    lasts: bool,
    users: BTreeSet<usize>,
}

/// A task before regions have places.
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
    tasks: Vec<Draft>,
    open: BTreeMap<(usize, RegionKind), Open>,
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
            tasks: Vec::new(),
            open: BTreeMap::new(),
            opened: Vec::new(),
        }
    }

    /// The step plan.
    ///
    /// # Errors
    /// As [`StepPlan::of`].
    pub fn laid_out(mut self) -> Result<StepPlan> {
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
        let offset = if self.tasks.len() < self.split {
            0
        } else {
            self.split
        };
        self.tasks.push(Draft {
            action: action.clone(),
            regions: Vec::new(),
            after: action.after.iter().map(|task| task + offset).collect(),
            begins: Vec::new(),
        });
        self.tasks.len() - 1
    }

    /// Opens a region that the task fills; one of no bytes is left out.
    fn open(&mut self, task: usize, unit: usize, held: RegionKind) {
        let bytes = self.sizes[unit].of(held);
        if bytes == 0 {
            return;
        }
        self.opened.push(Opened {
            unit,
            held,
            life: Lifetime {
                bytes,
                first: task,
                last: task,
            },
            lasts: false,
            users: BTreeSet::from([task]),
        });
        let region = self.opened.len() - 1;
        self.tasks[task].regions.push(region);
        let open = Open {
            region,
            users: BTreeSet::from([task]),
            filled: task,
        };
        self.open.insert((unit, held), open);
    }

    /// The task works on a region that is open; `fills` says that later ones need what it makes.
    fn work_on(&mut self, task: usize, unit: usize, held: RegionKind, fills: bool) -> Result<()> {
        if self.sizes[unit].of(held) == 0 {
            return Ok(());
        }
        let Some(open) = self.open.get_mut(&(unit, held)) else {
            let action = &self.tasks[task].action;
            return Err(PluginError::invalid(format!(
                "schedule: action {task} ({:?} of unit {}) works on the {held:?} bytes of unit {unit}, which nothing has \
                 brought",
                action.act, action.unit
            )));
        };
        if fills {
            self.tasks[task].after.extend(&open.users);
            open.filled = task;
        } else {
            self.tasks[task].after.insert(open.filled);
        }
        open.users.insert(task);
        if !self.tasks[task].regions.contains(&open.region) {
            self.tasks[task].regions.push(open.region);
        }
        Ok(())
    }

    /// The task is the last to use a region.
    fn close(&mut self, task: usize, unit: usize, held: RegionKind) {
        let Some(open) = self.open.remove(&(unit, held)) else {
            return;
        };
        let after: Vec<usize> = open
            .users
            .iter()
            .copied()
            .filter(|&user| user != task)
            .collect();
        self.tasks[task].after.extend(after);
        let opener = self.opened[open.region].life.first;
        let opened = &mut self.opened[open.region];
        opened.users.extend(&open.users);
        opened.users.insert(task);
        opened.life.last = task;
        opened.lasts |= self.tasks[opener].action.when != self.tasks[task].action.when;
    }

    /// What is never closed lasts.
    fn close_all(&mut self) {
        let Some(last) = self.tasks.len().checked_sub(1) else {
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
        let task = self.begin(action);
        match action.act {
            Act::Fetch => {
                for part in &action.parts {
                    match part {
                        Part::Frozen => self.open(task, unit, RegionKind::Frozen),
                        Part::Trainable => self.open(task, unit, RegionKind::Trainable),
                        Part::Saved => self.open(task, unit, RegionKind::Saved),
                        Part::Gradients | Part::Optimizer => {}
                    }
                }
            }
            Act::Gather => {
                for (part, held, from) in [
                    (Part::Frozen, RegionKind::Frozen, place.frozen),
                    (Part::Trainable, RegionKind::Trainable, place.trainable),
                ] {
                    if !action.parts.contains(&part) {
                        continue;
                    }
                    match from {
                        Place::ShardedOnHost => self.work_on(task, unit, held, true)?,
                        _ => self.open(task, unit, held),
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
                        Part::Gradients => self.close(task, unit, RegionKind::Reduced),
                        Part::Optimizer => {}
                    }
                }
            }
            Act::Reduce => self.reduce(task, action)?,
            Act::Norm => {
                if place.optimizer == Place::ShardedOnHost {
                    self.work_on(task, unit, RegionKind::Reduced, false)?;
                } else if let Some(reduce) = self.reduced_by(unit) {
                    self.tasks[task].after.insert(reduce);
                }
            }
            Act::Offload => {
                for part in &action.parts {
                    match part {
                        Part::Gradients => {
                            self.work_on(task, unit, RegionKind::Reduced, false)?;
                            self.close(task, unit, RegionKind::Reduced);
                        }
                        Part::Saved => {
                            self.work_on(task, unit, RegionKind::Saved, false)?;
                            self.close(task, unit, RegionKind::Saved);
                        }
                        _ => {}
                    }
                }
            }
            Act::Optimize => {}
        }
        Ok(())
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
                self.work_on(task, unit, RegionKind::Frozen, false)?;
            }
            if place.trainable != Place::Replicated {
                self.work_on(task, unit, RegionKind::Trainable, false)?;
            }
            if has_gradients && self.trains(unit) && self.is_cut(unit) {
                if self.open.contains_key(&(unit, RegionKind::Gradients)) {
                    self.work_on(task, unit, RegionKind::Gradients, true)?
                } else {
                    self.open(task, unit, RegionKind::Gradients);
                    let when = self.gradients_begin();
                    self.tasks[task].begins.push((unit, when));
                }
            }
        }
        Ok(())
    }

    /// Blocks of saved activations that leave the device: a unit's input, which the unit before it makes, and what it saves.
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
                self.work_on(task, unit, RegionKind::Saved, true)?
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

    fn reduce(&mut self, task: usize, action: &Action) -> Result<()> {
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
        self.open(task, unit, RegionKind::Wire);
        self.close(task, unit, RegionKind::Wire);
        if !self.is_cut(unit) {
            let backward: Vec<usize> = (0..task)
                .filter(|&at| self.makes_gradients(at, unit))
                .collect();
            self.tasks[task].after.extend(backward);
            return Ok(());
        }
        self.work_on(task, unit, RegionKind::Gradients, false)?;
        let begins = self.gradients_begin();
        let region = self.open[&(unit, RegionKind::Gradients)].region;
        self.close(task, unit, RegionKind::Gradients);
        self.opened[region].lasts = begins == When::First;
        if self.place(unit).optimizer == Place::ShardedOnHost {
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

    /// The task that reduced a unit's gradients.
    fn reduced_by(&self, unit: usize) -> Option<usize> {
        self.tasks
            .iter()
            .rposition(|task| task.action.act == Act::Reduce && task.action.unit == unit)
    }

    fn update_leg(&mut self, action: &Action) -> Result<()> {
        let unit = action.unit;
        let place = self.place(unit);
        let task = self.begin(action);
        let held = |part: &Part| match part {
            Part::Trainable => Some(RegionKind::Values),
            Part::Gradients => Some(RegionKind::Reduced),
            Part::Optimizer => Some(RegionKind::Moments),
            Part::Frozen | Part::Saved => None,
        };
        match action.act {
            Act::Fetch => {
                for held in action.parts.iter().filter_map(held) {
                    self.open(task, unit, held);
                }
            }
            Act::Optimize => {
                if place.trainable == Place::ShardedOnHost {
                    self.work_on(task, unit, RegionKind::Values, true)?;
                }
                if place.optimizer == Place::ShardedOnHost {
                    self.work_on(task, unit, RegionKind::Reduced, false)?;
                    self.work_on(task, unit, RegionKind::Moments, true)?;
                }
            }
            Act::Offload => {
                for held in action.parts.iter().filter_map(held) {
                    self.work_on(task, unit, held, false)?;
                    self.close(task, unit, held);
                }
            }
            Act::Release => {
                for held in action.parts.iter().filter_map(held) {
                    self.close(task, unit, held);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Calls of collectives are made in one order by all ranks: by one lane.
    fn one_lane_for_collectives(&self) -> Result<()> {
        let calls = self.tasks.iter().map(|task| &task.action);
        let lanes: BTreeSet<Lane> = calls
            .filter(|action| matches!(action.act, Act::Gather | Act::Reduce))
            .map(lane_of)
            .collect();
        if lanes.len() > 1 {
            Err(PluginError::invalid(
                "schedule: some gathers and reductions are on stream 0, others are not: all ranks must make them in one \
             order, so all belong on one side",
            ))
        } else {
            Ok(())
        }
    }

    /// Gives regions their places and tasks what they wait for.
    fn finish(mut self) -> StepPlan {
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
                    last: self.tasks.len() - 1,
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
                    self.tasks[opened.life.first].after.extend(&earlier.users);
                }
            }
        }
        let lanes: Vec<Lane> = self
            .tasks
            .iter()
            .map(|task| lane_of(&task.action))
            .collect();
        let opened = &self.opened;
        let mut tasks = self.tasks.into_iter().enumerate().map(|(index, draft)| {
            let begin = if index < split { 0 } else { split };
            let others = draft.after.iter().copied();
            let others =
                others.filter(|&task| task >= begin && task < index && lanes[task] != lanes[index]);
            Task {
                waits: others.max().map(|task| task - begin),
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
        let micro_batch: Vec<Task> = tasks.by_ref().take(split).collect();
        let update = tasks.collect();
        StepPlan {
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
