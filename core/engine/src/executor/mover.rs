//! The tasks that move bytes: between host and device, and between ranks.

use espalier_interface::schedule::{Act, Part, Place};
use espalier_interface::{BufferRange, DType, PluginError, Stream};
use espalier_plan::step_plan::{RegionKind, Task};
use espalier_plan::storage_layout::StateKind;

use super::Executor;
use super::collectives::TaskCall;
use super::storage::part;
use super::window::Numbers;
use crate::error::{Result, schedule_failure};

impl Executor {
    /// Does a task that moves bytes, of a sweep of these micro-batches; none in an update.
    pub(super) fn transfer(&self, task: &Task, sweep: &[Numbers]) -> Result<()> {
        if task.action.parts.contains(&Part::Saved) {
            let mut moved = sweep.iter();
            moved.try_for_each(|numbers| self.move_saved(task, numbers))?;
        }
        match task.action.act {
            Act::Fetch => self.fetch(task),
            Act::Gather => self.gather(task),
            Act::Reduce => self.reduce(task),
            Act::Offload => self.offload(task),
            // A region ends when the step plan says so.
            _ => Ok(()),
        }
    }

    fn stream(&self, task: &Task) -> Stream {
        self.streams[task.lane.0]
    }

    /// A task's region of its own unit; none where it has no bytes.
    fn own_region(&self, task: &Task, held: RegionKind) -> Option<BufferRange> {
        let region = task.region(task.action.unit, held)?;
        Some(self.storage.region(region.offset, region.bytes))
    }

    fn copy(&self, from: BufferRange, to: BufferRange, task: &Task) -> Result<()> {
        if from == to {
            return Ok(());
        }
        if task.action.act == Act::Fetch {
            self.work_counter.fetched(from.bytes);
        }
        let stream = self.stream(task);
        self.since_wait
            .during("copy", self.device.copy(from, to, stream))
    }

    fn fetch(&self, task: &Task) -> Result<()> {
        let unit = task.action.unit;
        let updates = task.is_of_update();
        for which in &task.action.parts {
            match which {
                Part::Frozen => {
                    let region = self.own_region(task, RegionKind::Frozen);
                    let home = self.storage.frozen_home(unit);
                    if let (Some(region), Some(home)) = (region, home) {
                        let to = match self.shard_layout.placements[unit].frozen {
                            Place::Host => part(region, &(0..home.bytes), 1),
                            _ => self.own_slot(region),
                        };
                        self.copy(home, to, task)?;
                    }
                }
                Part::Trainable if updates => self.fetch_own(task, RegionKind::Values)?,
                Part::Trainable => {
                    if let Some(region) = self.own_region(task, RegionKind::Trainable) {
                        let home = self.storage.kept(unit, StateKind::Values);
                        self.copy(home, self.own_slot(region), task)?;
                    }
                }
                Part::Gradients => self.fetch_own(task, RegionKind::Reduced)?,
                Part::Optimizer => self.fetch_own(task, RegionKind::State)?,
                Part::Saved => {}
            }
        }
        Ok(())
    }

    /// Moves what a unit saved of a micro-batch to the host, or back.
    fn move_saved(&self, task: &Task, numbers: &Numbers) -> Result<()> {
        let unit = task.action.unit;
        let region = self.own_region(task, RegionKind::Saved);
        let (Some(region), Some(home)) = (region, self.storage.saved_home(unit)) else {
            return Ok(());
        };
        let begin = numbers.slot * self.shard_layout.saved[unit].bytes;
        for &(offset, extent) in &self.program.blocks[unit].values {
            let offset = begin + offset;
            let bytes = extent.bytes(numbers.tokens, numbers.sequences);
            let range = offset..offset + bytes;
            let (device, host) = (part(region, &range, 1), part(home, &range, 1));
            match task.action.act {
                Act::Offload => self.copy(device, host, task)?,
                Act::Fetch => self.copy(host, device, task)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Fetches this rank's part of trained state from its location between steps.
    fn fetch_own(&self, task: &Task, held: RegionKind) -> Result<()> {
        let Some(region) = self.own_region(task, held) else {
            return Ok(());
        };
        let homes = self.homes(task.action.unit, held);
        for (home, at) in homes {
            self.copy(home, part(region, &(at..at + home.bytes), 1), task)?;
        }
        Ok(())
    }

    /// The location of an update region's content between steps, each part with its offset in
    /// the region.
    pub(super) fn homes(&self, unit: usize, held: RegionKind) -> Vec<(BufferRange, u64)> {
        let home = |kept| self.storage.kept(unit, kept);
        match held {
            RegionKind::Values => vec![(home(StateKind::Values), 0)],
            RegionKind::Reduced => vec![(home(StateKind::Gradients), 0)],
            RegionKind::State => {
                let mut at = 0;
                let state = self.storage.trained(unit).state.iter();
                let placed = state.map(|&home| {
                    let begin = at;
                    at += home.bytes;
                    (home, begin)
                });
                placed.collect()
            }
            _ => Vec::new(),
        }
    }

    fn offload(&self, task: &Task) -> Result<()> {
        for which in &task.action.parts {
            let held = match which {
                Part::Trainable => RegionKind::Values,
                Part::Gradients => RegionKind::Reduced,
                Part::Optimizer => RegionKind::State,
                Part::Frozen | Part::Saved => continue,
            };
            let Some(region) = self.own_region(task, held) else {
                continue;
            };
            for (home, at) in self.homes(task.action.unit, held) {
                self.copy(part(region, &(at..at + home.bytes), 1), home, task)?;
            }
        }
        Ok(())
    }

    /// This rank's slot of a region that holds all parts of a run.
    fn own_slot(&self, region: BufferRange) -> BufferRange {
        let (own, parts) = self.peers.shard();
        let bytes = region.bytes / u64::from(parts);
        let first = u64::from(own) * bytes;
        part(region, &(first..first + bytes), 1)
    }

    fn gather(&self, task: &Task) -> Result<()> {
        let unit = task.action.unit;
        for (send, region, held) in self.gathered(task) {
            let label = self.label("gather", unit, held);
            if self.peers.world().ranks == 1 {
                self.copy(send, region, task)?;
                continue;
            }
            let of_others = region.bytes.saturating_sub(send.bytes);
            self.work_counter.gathered(of_others);
            self.all_gather(self.call(task, &label), send, region)?;
        }
        Ok(())
    }

    /// A gather's operands: this rank's part, the region of all parts, and its content.
    pub(super) fn gathered(&self, task: &Task) -> Vec<(BufferRange, BufferRange, RegionKind)> {
        let unit = task.action.unit;
        let place = self.shard_layout.placements[unit];
        let frozen = self.storage.frozen_home(unit);
        let trainable = Some(self.storage.kept(unit, StateKind::Values));
        let of_parts = [
            (Part::Frozen, RegionKind::Frozen, place.frozen, frozen),
            (
                Part::Trainable,
                RegionKind::Trainable,
                place.trainable,
                trainable,
            ),
        ];
        let wanted = of_parts
            .into_iter()
            .filter(|(part, ..)| task.action.parts.contains(part));
        let ranges = wanted.filter_map(|(_, held, place, home)| {
            let (region, home) = (self.own_region(task, held)?, home?);
            let send = match place {
                Place::ShardedOnHost => self.own_slot(region),
                _ => home,
            };
            Some((send, region, held))
        });
        ranges.collect()
    }

    fn reduce(&self, task: &Task) -> Result<()> {
        let unit = task.action.unit;
        if self.shard_layout.flat_params[unit].elements == 0 {
            return Ok(());
        }
        let label = self.label("reduce", unit, RegionKind::Gradients);
        let wire = self.own_region(task, RegionKind::Wire);
        let travels = match wire {
            Some(_) => self.shard_layout.wire.unwrap_or(self.dtypes.gradients),
            None => self.dtypes.gradients,
        };
        if !self.shard_layout.is_cut(unit) {
            let own = self.own_region(task, RegionKind::Gradients);
            let own = own.unwrap_or_else(|| self.storage.kept(unit, StateKind::Gradients));
            let data = wire.unwrap_or(own);
            self.cast(own, data, [self.dtypes.gradients, travels], task)?;
            if self.peers.world().ranks > 1 {
                self.all_reduce(self.call(task, &label), travels, data)?;
            }
            return self.cast(data, own, [travels, self.dtypes.gradients], task);
        }
        let own = match self.own_region(task, RegionKind::Reduced) {
            Some(region) => region,
            None => self.storage.kept(unit, StateKind::Gradients),
        };
        let all = self
            .own_region(task, RegionKind::Gradients)
            .ok_or_else(|| {
                unsupported("the schedule reduces gradients that no backward pass computed")
            })?;
        let (send, recv) = match wire {
            None => (all, own),
            Some(wire) => {
                let parts = u64::from(self.peers.shard().1);
                let bytes = wire.bytes / (parts + 1);
                let split = [
                    part(wire, &(0..parts * bytes), 1),
                    part(wire, &(parts * bytes..wire.bytes), 1),
                ];
                self.cast(all, split[0], [self.dtypes.gradients, travels], task)?;
                (split[0], split[1])
            }
        };
        if self.peers.world().ranks == 1 {
            self.copy(send, recv, task)?;
            return self.cast(recv, own, [travels, self.dtypes.gradients], task);
        }
        self.reduce_scatter(self.call(task, &label), travels, send, recv)?;
        self.cast(recv, own, [travels, self.dtypes.gradients], task)
    }

    /// Casts elements to another dtype. Does nothing where both ranges are the same.
    fn cast(
        &self,
        from: BufferRange,
        to: BufferRange,
        [from_dtype, to_dtype]: [DType; 2],
        task: &Task,
    ) -> Result<()> {
        if from == to {
            return Ok(());
        }
        let count = from.bytes / from_dtype.bytes();
        let kernel = self.prepared.cast([from_dtype, to_dtype], count);
        let kernel = kernel.ok_or_else(|| unsupported("a cast that was not prepared"))?;
        self.launch_on(self.stream(task), &kernel, &[from, to], &[])
    }

    fn label(&self, what: &str, unit: usize, held: RegionKind) -> String {
        let name = &self.program.units[unit].name;
        format!("{what} {} of {name}", format!("{held:?}").to_lowercase())
    }

    /// A collective call of a task.
    fn call<'a>(&self, task: &Task, label: &'a str) -> TaskCall<'a> {
        TaskCall {
            label,
            stream: self.stream(task),
        }
    }
}

fn unsupported(what: &str) -> crate::Error {
    let message = format!("the schedule asks for {what}, which this executor does not serve");
    schedule_failure(PluginError::unsupported(message))
}
