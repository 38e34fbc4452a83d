//! A plan -> its storage on the device with every param in its place.

use std::any::Any;
use std::collections::HashSet;
use std::ptr::NonNull;
use std::sync::Arc;

use espalier_interface::schedule::Place;
use espalier_interface::{BufferRange, HostMemory, Stream};
use memmap2::MmapMut;
use serde_json::Value as Json;

use crate::bytes::Bytes;
use crate::config::{Config, Init};
use crate::error::BackendCall;
use crate::executor::{Executor, Kept, Storage, StorageLayout};
use crate::files::{AdapterDirectory, ModelDirectory};
use crate::load::{Inspector, LoadReport, Loader, Origin};
use crate::observer::{Event, Observer};
use crate::params::Param;
use crate::plan::RunPlan;
use crate::ranks::Peers;
use crate::select::{Collectives, Components};
use crate::stop::StopFlag;
use crate::team::Team;
use crate::{Error, memory};

use super::company::joined;

/// Allocates a plan's storage, loads every param and returns the executor.
///
/// # Errors
/// What [`Loader::load`] gives; an adapter that is not the one the options describe.
pub fn load(
    config: &Config,
    model: &ModelDirectory,
    components: &Components,
    plan: RunPlan,
    observer: &dyn Observer,
) -> Result<(Executor, LoadReport), Error> {
    load_inspected(config, model, components, plan, observer, None)
}

/// As [`load`]; `inspector` looks at each weight that is encoded.
///
/// # Errors
/// As [`load`]; what the inspector reports.
pub fn load_inspected(
    config: &Config,
    model: &ModelDirectory,
    components: &Components,
    plan: RunPlan,
    observer: &dyn Observer,
    inspector: Option<&dyn Inspector>,
) -> Result<(Executor, LoadReport), Error> {
    let stop = &StopFlag::new();
    let loading = Loading {
        config,
        model,
        components,
        observer,
        stop,
        inspector,
    };
    loading.all(plan)
}

/// Joins the ranks of this process with all others, allocates what `plans` say, one a rank, and loads every param.
///
/// # Errors
/// As [`load`]; a rank that does not come.
pub fn load_team(
    config: &Config,
    model: &ModelDirectory,
    components: &Components,
    (plans, collectives): (Vec<RunPlan>, &Collectives),
    observer: &dyn Observer,
) -> Result<(Team, LoadReport), Error> {
    let stop = &StopFlag::new();
    let loading = Loading {
        config,
        model,
        components,
        observer,
        stop,
        inspector: None,
    };
    let ranks = joined(plans, collectives, config, stop, (&Json::Null, 0))?;
    let (executors, report) = loading.load_ranks(ranks, &|_| true)?;
    Ok((Team::new(executors), report))
}

/// All that params are loaded with.
pub(crate) struct Loading<'a> {
    pub config: &'a Config,
    pub model: &'a ModelDirectory,
    pub components: &'a Components,
    pub observer: &'a dyn Observer,
    pub stop: &'a StopFlag,
    /// Looks at each weight that is encoded.
    pub inspector: Option<&'a dyn Inspector>,
}

impl Loading<'_> {
    /// Loads every param.
    pub fn all(&self, plan: RunPlan) -> Result<(Executor, LoadReport), Error> {
        self.load(plan, |_| true)
    }

    fn load(
        &self,
        plan: RunPlan,
        wanted: impl Fn(&Param) -> bool,
    ) -> Result<(Executor, LoadReport), Error> {
        let peers = Arc::new(Peers::alone());
        let (mut executors, report) = self.load_ranks(vec![(plan, peers)], &wanted)?;
        Ok((executors.swap_remove(0), report))
    }

    /// Loads the params that are `wanted` for every rank of this process.
    pub fn load_ranks(
        &self,
        ranks: Vec<(RunPlan, Arc<Peers>)>,
        wanted: &dyn Fn(&Param) -> bool,
    ) -> Result<(Vec<Executor>, LoadReport), Error> {
        let (first, _) = &ranks[0];
        if let Some(saved) = &self.components.saved_adapter {
            let added = first.params.iter().filter(|param| param.kind.is_none());
            check_saved_adapter(saved, added.map(|param| param.name.as_str()))?;
        }
        if ranks.len() == 1 && !first.course.moves() {
            let mut executors = Vec::new();
            let mut report = LoadReport::default();
            for (plan, peers) in ranks {
                let storage = plan.storage()?;
                report = self.fill(&plan, &storage, |_, param| wanted(param))?;
                executors.push(Executor::new(plan, storage, peers)?);
            }
            return Ok((executors, report));
        }
        self.load_staged(ranks, wanted)
    }

    /// Loads units whole on the first rank's device, and gives every rank its part of them.
    fn load_staged(
        &self,
        ranks: Vec<(RunPlan, Arc<Peers>)>,
        wanted: &dyn Fn(&Param) -> bool,
    ) -> Result<(Vec<Executor>, LoadReport), Error> {
        let (first, _) = &ranks[0];
        let device = Arc::clone(&first.device);
        let cutting = first.cutting.uncut();
        let stage = Storage::new(
            &device,
            &StorageLayout {
                cutting: &cutting,
                region_bytes: 0,
                batch: [0, 0],
                scratch: [0, 0],
                ..first.storage_layout()
            },
        );
        let stage = stage.during("alloc")?;
        let report = self.fill(first, &stage, |_, param| wanted(param))?;
        let mut executors = Vec::with_capacity(ranks.len());
        for (plan, peers) in ranks {
            let storage = plan.storage()?;
            executors.push(Executor::new(plan, storage, peers)?);
        }
        let mut copied: Vec<(usize, u64)> = Vec::new();
        let mut copy_bytes = 0;
        for (unit, place) in executors[0].placements().iter().enumerate() {
            if place.frozen == Place::Host {
                copied.push((unit, copy_bytes));
                copy_bytes += cutting.runs[unit].frozen_bytes;
            }
        }
        let mut copy = HostCopy::new(copy_bytes)?;
        for (unit, runs) in cutting.runs.iter().enumerate() {
            let read = |from: BufferRange| {
                let mut run = vec![0; from.bytes as usize];
                let read = device.download(from, &mut run, Stream(0));
                read.during("download").map(|()| run)
            };
            if let Some(from) = stage.frozen_run(unit) {
                let run = read(from)?;
                if let Some((_, offset)) = copied.iter().find(|(copied, _)| *copied == unit) {
                    copy.bytes_mut()[*offset as usize..][..run.len()].copy_from_slice(&run);
                }
                let mut ranks = executors.iter();
                let placed = ranks.try_for_each(|executor| executor.place_frozen(unit, &run));
                placed.during("upload")?;
            }
            if runs.elements > 0 {
                let run = read(stage.kept(unit, Kept::Values))?;
                let mut ranks = executors.iter();
                let placed = ranks.try_for_each(|executor| executor.place_values(unit, &run));
                placed.during("upload")?;
            }
        }
        if !copied.is_empty() {
            let copy = Arc::new(copy);
            for executor in &mut executors {
                let owner = Arc::clone(&copy) as Arc<dyn Any + Send + Sync>;
                executor
                    .lend(owner, copy.memory(), &copied)
                    .during("import")?;
            }
        }
        Ok((executors, report))
    }

    /// Loads the params that are `wanted`, given their indices, into their places in `storage`.
    pub fn fill(
        &self,
        plan: &RunPlan,
        storage: &Storage,
        wanted: impl Fn(usize, &Param) -> bool,
    ) -> Result<LoadReport, Error> {
        let tensors = match self.config.model.init {
            Init::Random => None,
            Init::Checkpoint => Some(self.model.tensors()?),
        };
        let saved = self.components.saved_adapter.as_ref();
        let loader = Loader::new(plan.device.as_ref(), storage, self.config.run.seed);
        let mut loader = loader.shown_to(self.inspector);
        let total = plan.params.len() as u64;
        let total_bytes = plan.params.iter().map(Param::bytes).sum();
        let mut bytes = 0;
        for (index, param) in plan.params.iter().enumerate() {
            self.stop.check()?;
            let origin = match (param.kind, &tensors, saved) {
                (Some(_), Some(tensors), _) => Origin::Files(tensors),
                (None, _, Some(saved)) => Origin::Files(saved.tensors()),
                _ => Origin::Random,
            };
            if wanted(index, param) {
                loader.load(index, param, origin, plan.packing(index))?;
            }
            let done = index as u64 + 1;
            bytes += param.bytes();
            self.observer.observe(&Event::LoadProgress {
                param: &param.name,
                done,
                total,
                bytes,
                total_bytes,
            });
        }
        Ok(loader.report())
    }
}

/// The machine's copy of frozen units.
struct HostCopy(MmapMut);

impl HostCopy {
    /// `bytes` bytes, and the tail that devices may read.
    fn new(bytes: u64) -> Result<Self, Error> {
        let map = MmapMut::map_anon(bytes as usize + 64).map_err(|_| Error::OutOfMemory {
            kind: "host".to_owned(),
            needed: Bytes(bytes),
            available: Bytes(memory::available_bytes().unwrap_or(0)),
        })?;
        Ok(HostCopy(map))
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }

    /// The memory as devices take it.
    #[allow(unsafe_code)]
    fn memory(&self) -> HostMemory {
        let address = NonNull::from(&self.0[..]).cast();
        // SAFETY: a mapping is page-aligned and has the tail; whoever borrows it holds on to this.
        unsafe { HostMemory::new(address, self.0.len() as u64 - 64) }
    }
}

/// Every tensor of a saved adapter must be one of the plan's.
pub(crate) fn check_saved_adapter<'a>(
    saved: &AdapterDirectory,
    names: impl Iterator<Item = &'a str>,
) -> Result<(), Error> {
    let known: HashSet<&str> = names.collect();
    let stranger = saved
        .tensors()
        .entries()
        .iter()
        .find(|e| !known.contains(e.name.as_str()));
    match stranger {
        None => Ok(()),
        Some(entry) => Err(Error::Checkpoint {
            path: saved.path().to_owned(),
            message: format!(
                "tensor `{}` belongs to no site of this model that its adapter_config.json targets",
                entry.name
            ),
        }),
    }
}
