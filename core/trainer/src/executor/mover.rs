//! The legs that move bytes: between host and device, and between ranks.

use espalier_interface::schedule::{Act, Part, Place};
use espalier_interface::{BufferRange, DType, PluginError, Stream};

use super::Executor;
use super::course::{Held, Lane, Leg};
use super::launch::Numbers;
use super::storage::{Kept, part};
use crate::error::{BackendCall, Result};
use crate::ranks::{Among, Span};

impl Executor {
    /// Does a leg that moves bytes.
    pub(super) fn transfer(&self, leg: &Leg, numbers: Option<&Numbers>) -> Result<()> {
        if leg.action.parts.contains(&Part::Saved)
            && let Some(numbers) = numbers
        {
            self.move_saved(leg, numbers)?;
        }
        match leg.action.act {
            Act::Fetch => self.fetch(leg),
            Act::Gather => self.gather(leg),
            Act::Reduce => self.reduce(leg),
            Act::Offload => self.offload(leg),
            // A region ends when the course says so.
            _ => Ok(()),
        }
    }

    fn stream(&self, leg: &Leg) -> Stream {
        match leg.lane {
            Lane::Compute => Stream(0),
            Lane::Move => self.moving,
        }
    }

    /// A leg's region of its own unit; none where it has no bytes.
    fn own_region(&self, leg: &Leg, held: Held) -> Option<BufferRange> {
        let region = leg.region(leg.action.unit, held)?;
        Some(self.storage.region(region.offset, region.bytes))
    }

    fn copy(&self, from: BufferRange, to: BufferRange, leg: &Leg) -> Result<()> {
        let stream = self.stream(leg);
        self.device.copy(from, to, stream).during("copy")
    }

    fn fetch(&self, leg: &Leg) -> Result<()> {
        let unit = leg.action.unit;
        let updates = self.is_of_update(leg);
        for which in &leg.action.parts {
            match which {
                Part::Frozen => {
                    let region = self.own_region(leg, Held::Frozen);
                    let home = self.storage.frozen_home(unit);
                    if let (Some(region), Some(home)) = (region, home) {
                        let to = match self.cutting.placements[unit].frozen {
                            Place::Host => part(region, &(0..home.bytes), 1),
                            _ => self.own_slot(region),
                        };
                        self.copy(home, to, leg)?;
                    }
                }
                Part::Trainable if updates => self.fetch_own(leg, Held::Values)?,
                Part::Trainable => {
                    if let Some(region) = self.own_region(leg, Held::Trainable) {
                        let home = self.storage.kept(unit, Kept::Values);
                        self.copy(home, self.own_slot(region), leg)?;
                    }
                }
                Part::Gradients => self.fetch_own(leg, Held::Reduced)?,
                Part::Optimizer => self.fetch_own(leg, Held::Moments)?,
                Part::Saved => {}
            }
        }
        Ok(())
    }

    /// Moves what a unit saved of a micro-batch to the host, or back.
    fn move_saved(&self, leg: &Leg, numbers: &Numbers) -> Result<()> {
        let unit = leg.action.unit;
        let region = self.own_region(leg, Held::Saved);
        let (Some(region), Some(home)) = (region, self.storage.saved_home(unit)) else {
            return Ok(());
        };
        for &(offset, extent) in &self.program.blocks[unit].values {
            let bytes = extent.bytes(numbers.tokens, numbers.sequences);
            let range = offset..offset + bytes;
            let (device, host) = (part(region, &range, 1), part(home, &range, 1));
            match leg.action.act {
                Act::Offload => self.copy(device, host, leg)?,
                Act::Fetch => self.copy(host, device, leg)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Whether a leg belongs to the update.
    fn is_of_update(&self, leg: &Leg) -> bool {
        leg.region(leg.action.unit, Held::Values).is_some()
            || leg.region(leg.action.unit, Held::Moments).is_some()
    }

    /// Brings this rank's part of what is trained from where it lies between steps.
    fn fetch_own(&self, leg: &Leg, held: Held) -> Result<()> {
        let Some(region) = self.own_region(leg, held) else {
            return Ok(());
        };
        let homes = self.homes(leg.action.unit, held);
        for (home, at) in homes {
            self.copy(home, part(region, &(at..at + home.bytes), 1), leg)?;
        }
        Ok(())
    }

    /// Where the parts of what a region of the update holds lie between steps, with their places in it.
    fn homes(&self, unit: usize, held: Held) -> Vec<(BufferRange, u64)> {
        let home = |kept| self.storage.kept(unit, kept);
        match held {
            Held::Values => vec![(home(Kept::Values), 0)],
            Held::Reduced => vec![(home(Kept::Gradients), 0)],
            Held::Moments => {
                let [first, second] = [home(Kept::FirstMoment), home(Kept::SecondMoment)];
                vec![(first, 0), (second, first.bytes)]
            }
            _ => Vec::new(),
        }
    }

    fn offload(&self, leg: &Leg) -> Result<()> {
        for which in &leg.action.parts {
            let held = match which {
                Part::Trainable => Held::Values,
                Part::Gradients => Held::Reduced,
                Part::Optimizer => Held::Moments,
                Part::Frozen | Part::Saved => continue,
            };
            let Some(region) = self.own_region(leg, held) else {
                continue;
            };
            for (home, at) in self.homes(leg.action.unit, held) {
                self.copy(part(region, &(at..at + home.bytes), 1), home, leg)?;
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

    fn gather(&self, leg: &Leg) -> Result<()> {
        let unit = leg.action.unit;
        let place = self.cutting.placements[unit];
        for (which, held, place, home) in [
            (
                Part::Frozen,
                Held::Frozen,
                place.frozen,
                self.storage.frozen_home(unit),
            ),
            (
                Part::Trainable,
                Held::Trainable,
                place.trainable,
                Some(self.storage.kept(unit, Kept::Values)),
            ),
        ] {
            if !leg.action.parts.contains(&which) {
                continue;
            }
            let (Some(region), Some(home)) = (self.own_region(leg, held), home) else {
                continue;
            };
            let send = match place {
                Place::ShardedOnHost => self.own_slot(region),
                _ => home,
            };
            let label = self.label("gather", unit, held);
            let (send, recv) = (self.span(send)?, self.span(region)?);
            self.peers.all_gather(Among::Shards, &label, send, recv)?;
        }
        Ok(())
    }

    fn reduce(&self, leg: &Leg) -> Result<()> {
        let unit = leg.action.unit;
        if self.cutting.runs[unit].elements == 0 {
            return Ok(());
        }
        let label = self.label("reduce", unit, Held::Gradients);
        let wire = self.own_region(leg, Held::Wire);
        let travels = match wire {
            Some(_) => self.cutting.wire.unwrap_or(self.dtypes.reduce),
            None => self.dtypes.reduce,
        };
        if !self.cutting.is_cut(unit) {
            let own = self.storage.kept(unit, Kept::Gradients);
            let data = wire.unwrap_or(own);
            self.cast(own, data, [self.dtypes.reduce, travels], leg)?;
            self.peers
                .all_reduce(Among::World, &label, travels, self.span(data)?)?;
            return self.cast(data, own, [travels, self.dtypes.reduce], leg);
        }
        let own = match self.own_region(leg, Held::Reduced) {
            Some(region) => region,
            None => self.storage.kept(unit, Kept::Gradients),
        };
        let all = self
            .own_region(leg, Held::Gradients)
            .ok_or_else(|| unsupported("a reduction of gradients that nothing has made"))?;
        let (send, recv) = match wire {
            None => (all, own),
            Some(wire) => {
                let parts = u64::from(self.peers.shard().1);
                let bytes = wire.bytes / (parts + 1);
                let split = [
                    part(wire, &(0..parts * bytes), 1),
                    part(wire, &(parts * bytes..wire.bytes), 1),
                ];
                self.cast(all, split[0], [self.dtypes.reduce, travels], leg)?;
                (split[0], split[1])
            }
        };
        self.peers.reduce_scatter(
            Among::Shards,
            &label,
            travels,
            self.span(send)?,
            self.span(recv)?,
        )?;
        if self.peers.world().ranks > self.peers.shard().1 {
            self.peers
                .all_reduce(Among::Replicas, &label, travels, self.span(recv)?)?;
        }
        self.cast(recv, own, [travels, self.dtypes.reduce], leg)
    }

    /// Elements of one dtype as another's; nothing where both are the same bytes.
    fn cast(
        &self,
        from: BufferRange,
        to: BufferRange,
        [from_dtype, to_dtype]: [DType; 2],
        leg: &Leg,
    ) -> Result<()> {
        if from == to {
            return Ok(());
        }
        let count = from.bytes / from_dtype.bytes();
        let kernel = self.prepared.cast([from_dtype, to_dtype], count);
        let kernel = kernel.ok_or_else(|| unsupported("a cast that was not prepared"))?;
        self.launch_on(self.stream(leg), &kernel, &[from, to], &[])
    }

    fn label(&self, what: &str, unit: usize, held: Held) -> String {
        let name = &self.program.units[unit].name;
        format!("{what} {} of {name}", format!("{held:?}").to_lowercase())
    }

    /// The host's address of a range.
    fn span(&self, range: BufferRange) -> Result<Span> {
        let address = self.device.host_address(range).ok_or_else(|| {
            unsupported(
                "a device whose memory the host does not reach, with a collective of the host's",
            )
        })?;
        Ok(Span {
            address,
            bytes: range.bytes,
        })
    }
}

fn unsupported(what: &str) -> crate::Error {
    let message = format!("the schedule asks for {what}, which this executor does not serve");
    PluginError::unsupported(message).into()
}
