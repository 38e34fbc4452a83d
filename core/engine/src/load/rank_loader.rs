//! Loading by all ranks of a machine: each weight is read and encoded by one rank, and every rank
//! takes its part.
#![allow(unsafe_code)] // Memory that ranks write in turns.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use espalier_compile::params::Param;
use espalier_interface::schedule::Part;
use espalier_interface::{Buffer, BufferRange, Device, Services, Stream};
use espalier_plan::stage_layout::{StageRegion, StagedRun};
use espalier_system::stop::StopFlag;

use super::member::{Member, agree, together};
use super::{
    CalibratedWeights, DrawnBy, HostRegion, Initialise, Inspector, KeptWeights, LoadReport, Loader,
    Origin, SegmentSource, Stage, WeightCache,
};
use crate::Error;
use crate::error::BackendCall;
use crate::observer::{Event, Observer};

/// A run of a unit that was loaded, for as long as every rank takes its part.
#[derive(Clone, Copy, Debug)]
pub struct LoadedRun<'a> {
    /// The unit.
    pub unit: usize,
    /// Which run of it: `Frozen` or `Trainable`.
    pub part: Part,
    /// All of it, padded to equal parts.
    pub bytes: &'a [u8],
}

/// Everything that a rank needs to load.
pub struct RankLoader<'a> {
    /// All params.
    pub params: &'a [Param],
    /// This rank's device.
    pub device: &'a Arc<dyn Device>,
    /// The threads that draw the weights to be encoded.
    pub services: &'a dyn Services,
    /// The memory that it loads in, with the other ranks of its machine.
    pub stage: &'a Arc<Stage>,
    /// The rank.
    pub member: &'a dyn Member,
    /// Where a param comes from.
    pub origin: &'a dyn Fn(&Param) -> Origin<'a>,
    /// Where the segments of a packed param come from.
    pub packing: &'a dyn Fn(usize) -> Option<SegmentSource<'a>>,
    /// The seed of random params.
    pub seed: u64,
    /// Who draws dense random params.
    pub drawn_by: DrawnBy,
    /// Told of the progress of the process's first rank.
    pub observer: &'a dyn Observer,
    /// Ends loading on all ranks.
    pub stop: &'a StopFlag,
    /// Inspects each weight that this rank encodes.
    pub inspector: Option<&'a dyn Inspector>,
    /// Encoded weights of runs of the same base.
    pub kept: Option<&'a KeptWeights>,
    /// Weights that were encoded with statistics of their inputs.
    pub calibrated: Option<&'a CalibratedWeights>,
    /// The user's cache of packed weights.
    pub cache: Option<&'a WeightCache>,
    /// Makes the values of params that begin from a weight.
    pub initialise: Option<Initialise<'a>>,
}

impl RankLoader<'_> {
    /// Loads the params that `wanted` accepts by index, together with the other ranks, which want
    /// the same params. `place` takes this rank's part of each run with a wanted param; the
    /// machine's copy needs no placing. The report is of the whole machine.
    ///
    /// # Errors
    /// As [`Loader::load`]. The error of `place`. The failure of another rank. Either all ranks
    /// return an error or none.
    pub fn load(
        &self,
        wanted: &dyn Fn(usize, &Param) -> bool,
        place: &mut dyn FnMut(&LoadedRun<'_>) -> Result<(), Error>,
    ) -> Result<LoadReport, Error> {
        let lent = Lent::new(self.device, Arc::clone(self.stage));
        let lent = agree(self.member, "lending the machine's memory", lent)?;
        let device = self.device.as_ref();
        let loader = Loader::new(device, self.services, self.seed);
        let loader = loader.drawing_by(self.drawn_by).shown_to(self.inspector);
        let loader = loader.keeping(self.kept).caching(self.cache);
        let loader = loader.calibrated_by(self.calibrated);
        let mut loader = loader.initialised_by(self.initialise);
        let mut loaders = HashMap::new();
        for (unit, runs) in self.stage.layout.units.iter().enumerate() {
            let runs = runs.iter();
            let runs = runs.map(|run| self.wanted(run, wanted, &mut loaders));
            let runs: Vec<Wanted<'_>> = runs.collect();
            let loaded = self.load_unit(&runs, &lent, &mut loader);
            // The host reads what the device wrote there.
            let loaded = loaded.and_then(|()| device.synchronize(Stream(0)).during("synchronize"));
            agree(self.member, &format!("loading unit {unit}"), loaded)?;
            let passed = runs.iter().filter(|run| run.passes());
            let placed = passed.map(|wanted| lent.loaded(unit, wanted.run));
            let placed = placed.into_iter().try_for_each(|run| place(&run));
            agree(self.member, &format!("placing unit {unit}"), placed)?;
            self.tell(unit);
        }
        let counted: Result<_, Error> = Ok(loader.report());
        let reports = together(self.member, "counting weights", counted)?;
        let (machine, ranks) = self.place_on_machine();
        let first = machine * ranks;
        let reports = &reports[first..first + ranks];
        Ok(reports
            .iter()
            .fold(LoadReport::default(), |all, one| all + one.clone()))
    }

    /// This rank's index on its machine, and the ranks of a machine.
    fn place_on_machine(&self) -> (usize, usize) {
        let ranks = self.member.world().ranks_per_machine() as usize;
        (self.member.rank() as usize / ranks, ranks)
    }

    /// Which params of a run are loaded, and by which of the machine's ranks. Large weights come
    /// first; each goes to the rank with the least work so far. A param that begins from a weight
    /// goes to the rank that loads the weight. `loaders` holds the ranks of all params so far.
    fn wanted<'r>(
        &self,
        run: &'r StagedRun,
        wanted: &dyn Fn(usize, &Param) -> bool,
        loaders: &mut HashMap<usize, usize>,
    ) -> Wanted<'r> {
        let elements = |index: usize| self.params[index].elements();
        let mut places: Vec<(usize, &[Range<u64>])> = run
            .params
            .iter()
            .filter(|(index, _)| wanted(*index, &self.params[*index]))
            .map(|(index, ranges)| (*index, ranges.as_slice()))
            .collect();
        places.sort_by_key(|&(index, _)| (Reverse(elements(index)), index));
        let (_, ranks) = self.place_on_machine();
        let mut load = vec![0; ranks];
        let params = places.into_iter().map(|(index, ranges)| {
            let weight = self.initialise.and_then(|one| one.weight_of(index));
            let with_weight = weight.and_then(|weight| loaders.get(&weight).copied());
            let least = (0..ranks).min_by_key(|&rank| load[rank]).expect("a rank");
            let loader = with_weight.unwrap_or(least);
            load[loader] += elements(index);
            loaders.insert(index, loader);
            (loader, index, ranges)
        });
        let params = params.collect();
        Wanted { run, params }
    }

    /// Loads this rank's share of a unit.
    fn load_unit(
        &self,
        runs: &[Wanted<'_>],
        lent: &Lent,
        loader: &mut Loader<'_>,
    ) -> Result<(), Error> {
        let (_, ranks) = self.place_on_machine();
        let own = self.member.rank() as usize % ranks;
        for wanted in runs.iter().filter(|wanted| !wanted.params.is_empty()) {
            if own == 0 {
                lent.clear_gaps(wanted.run);
            }
            for (_, index, ranges) in wanted.params.iter().filter(|(rank, ..)| *rank == own) {
                self.stop.check()?;
                let param = &self.params[*index];
                let ranges: Vec<BufferRange> = ranges
                    .iter()
                    .map(|bytes| lent.range(wanted.run.region, bytes))
                    .collect();
                let (origin, packing) = ((self.origin)(param), (self.packing)(*index));
                loader.load((*index, param), &ranges, origin, packing)?;
            }
        }
        Ok(())
    }

    /// Reports that all params up to those of `unit` are loaded, and those of no unit.
    fn tell(&self, unit: usize) {
        if self.member.rank() != self.member.world().own_ranks().start {
            return;
        }
        let params = self.params;
        let placed = || {
            params
                .iter()
                .filter(|param| param.unit <= unit || param.is_of_no_unit())
        };
        let Some(last) = params.iter().rfind(|param| param.unit == unit) else {
            return;
        };
        self.observer.observe(&Event::LoadProgress {
            param: &last.name,
            done: placed().count() as u64,
            total: params.len() as u64,
            bytes: placed().map(Param::bytes).sum(),
            total_bytes: params.iter().map(Param::bytes).sum(),
        });
    }
}

/// The params of a run that are loaded, by index, each with the rank of the machine that loads it.
struct Wanted<'r> {
    run: &'r StagedRun,
    params: Vec<(usize, usize, &'r [Range<u64>])>,
}

impl Wanted<'_> {
    /// Whether every rank takes its part of it.
    fn passes(&self) -> bool {
        !self.params.is_empty() && self.run.region == StageRegion::Passing
    }
}

/// The machine's memory as a device's buffers; given back when dropped.
struct Lent {
    device: Arc<dyn Device>,
    stage: Arc<Stage>,
    copy: Buffer,
    passing: Buffer,
}

impl Lent {
    fn new(device: &Arc<dyn Device>, stage: Arc<Stage>) -> Result<Self, Error> {
        let lend = |region: &HostRegion| device.import(region.memory()).during("import");
        let copy = lend(&stage.copy)?;
        let passing = lend(&stage.passing).inspect_err(|_| drop(device.free(copy)))?;
        Ok(Lent {
            device: Arc::clone(device),
            stage,
            copy,
            passing,
        })
    }

    fn range(&self, region: StageRegion, bytes: &Range<u64>) -> BufferRange {
        BufferRange {
            buffer: match region {
                StageRegion::Copy => self.copy,
                StageRegion::Passing => self.passing,
            },
            offset: bytes.start,
            bytes: bytes.end - bytes.start,
        }
    }

    fn loaded(&self, unit: usize, run: &StagedRun) -> LoadedRun<'_> {
        LoadedRun {
            unit,
            part: run.part,
            // SAFETY: all ranks have loaded the unit, and none loads the next before all have taken
            // their part.
            bytes: unsafe { self.stage.passing.slice(&run.bytes) },
        }
    }

    /// Earlier runs left data in the gaps between params.
    fn clear_gaps(&self, run: &StagedRun) {
        if run.region == StageRegion::Passing {
            let gaps = run.gaps().into_iter();
            gaps.for_each(|gap| self.stage.passing.clear(gap));
        }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        // A failure to free cannot be handled here; the memory is the host's and stays.
        for buffer in [self.copy, self.passing] {
            let _ = self.device.free(buffer);
        }
    }
}
