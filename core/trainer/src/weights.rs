//! Plans of this process's ranks -> their storage on the devices with all params loaded.

mod agreement;
mod calibrated;
mod frozen_params;
mod join_ranks;
mod loading_notes;
mod saved_adapter;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use espalier_compile::params::Param;
use espalier_config::{Config, Init};
use espalier_data::Dataset;
use espalier_engine::error::BackendCall;
use espalier_engine::executor::{Executor, PreparedRun, Storage};
use espalier_engine::load::{
    self, DrawnBy, FrozenTensor, Initialise, Inspector, KeptWeights, LoadReport, Loader,
    RankLoader, Staging, WeightCache, agree,
};
use espalier_engine::observer::{Event, Observer};
use espalier_engine::ranks::Peers;
use espalier_engine::team::Team;
use espalier_interface::Quantizer;
use espalier_interface::schedule::Part;
use espalier_plan::initialised_sites::InitialisedSite;
use espalier_plan::plan::RunPlan;
use espalier_registry::Chosen;
use espalier_registry::select::{Collectives, Components};
use espalier_system::files::{ModelDirectory, TensorStore};
use espalier_system::stop::StopFlag;
use serde_json::Value as Json;

use crate::Error;
use calibrated::PackedBefore;

pub(crate) use join_ranks::join_ranks;
pub(crate) use loading_notes::tell_packed;
pub(crate) use saved_adapter::{check_saved_adapter, is_drawn_again};

/// Allocates a run's storage, loads every param and returns the executor.
///
/// # Errors
/// Errors of [`Loader::load`]; an adapter that differs from the options.
pub fn load(
    config: &Config,
    model: &ModelDirectory,
    components: &Components,
    run: PreparedRun,
    observer: &dyn Observer,
) -> Result<(Executor, LoadReport), Error> {
    load_inspected(config, model, components, run, observer, None)
}

/// As [`load`]; `inspector` receives each encoded weight.
///
/// # Errors
/// As [`load`]; errors of the inspector.
pub fn load_inspected(
    config: &Config,
    model: &ModelDirectory,
    components: &Components,
    run: PreparedRun,
    observer: &dyn Observer,
    inspector: Option<&dyn Inspector>,
) -> Result<(Executor, LoadReport), Error> {
    let stop = &StopFlag::new();
    let loading = Loading {
        inspector,
        ..Loading::of(config, model, components, observer, stop)
    };
    loading.all(run)
}

/// Joins the ranks of this process with all others, allocates the storage of `runs`, one per rank,
/// and loads every param.
///
/// # Errors
/// As [`load`]; a rank that does not connect.
pub fn load_team(
    config: &Config,
    model: &ModelDirectory,
    components: &Components,
    runs: Vec<PreparedRun>,
    collectives: &Collectives,
    observer: &dyn Observer,
) -> Result<(Team, LoadReport), Error> {
    let stop = &StopFlag::new();
    Loading::of(config, model, components, observer, stop).team(runs, collectives)
}

/// The inputs of loading.
pub struct Loading<'a> {
    pub config: &'a Config,
    pub model: &'a ModelDirectory,
    pub components: &'a Components,
    pub observer: &'a dyn Observer,
    pub stop: &'a StopFlag,
    /// Receives each encoded weight.
    pub inspector: Option<&'a dyn Inspector>,
    /// Encoded weights of runs of the same base.
    pub kept: Option<&'a KeptWeights>,
    /// The rows of training, from which quantizers are calibrated.
    pub training_rows: Option<&'a Dataset>,
}

impl<'a> Loading<'a> {
    /// Loading without an inspector, of weights that no other run has encoded.
    pub fn of(
        config: &'a Config,
        model: &'a ModelDirectory,
        components: &'a Components,
        observer: &'a dyn Observer,
        stop: &'a StopFlag,
    ) -> Self {
        Loading {
            config,
            model,
            components,
            observer,
            stop,
            inspector: None,
            kept: None,
            training_rows: None,
        }
    }
}

impl Loading<'_> {
    /// Joins the ranks of this process with all others and loads every param.
    ///
    /// # Errors
    /// As [`load_team`].
    pub fn team(
        &self,
        runs: Vec<PreparedRun>,
        collectives: &Collectives,
    ) -> Result<(Team, LoadReport), Error> {
        let none = (&Json::Null, 0);
        let ranks = join_ranks(runs, collectives, self.config, self.stop, none)?;
        let (executors, report) = self.load_ranks(ranks, &|_| true)?;
        Ok((Team::new(executors), report))
    }

    /// Loads every param.
    pub fn all(&self, run: PreparedRun) -> Result<(Executor, LoadReport), Error> {
        let peers = Arc::new(Peers::alone());
        let (mut executors, report) = self.load_ranks(vec![(run, peers)], &|_| true)?;
        Ok((executors.swap_remove(0), report))
    }

    /// Checks that the `wanted` params of a plan can be loaded, by the headers of their files
    /// alone.
    ///
    /// # Errors
    /// An adapter that differs from the options; a tensor that is missing, or has another shape or
    /// dtype.
    pub fn check(&self, plan: &RunPlan, wanted: &dyn Fn(&Param) -> bool) -> Result<(), Error> {
        if let Some(saved) = &self.components.saved_adapter {
            let added = plan.params.iter().filter(|param| param.kind.is_none());
            let stored = added.filter(|param| param.part_of.is_none());
            check_saved_adapter(saved, stored.map(|param| param.name.as_str()))?;
        }
        let tensors = self.tensors()?;
        let params = plan.params.iter().enumerate();
        let mut params = params.filter(|(_, param)| wanted(param) && param.part_of.is_none());
        params.try_for_each(|(index, param)| {
            let origin = self.origin(param, tensors.as_ref());
            let packing = load::packing(&plan.quantizers, &plan.saved, index);
            Ok(load::check_origin(param, origin, packing)?)
        })
    }

    /// Loads the `wanted` params for every rank of this process.
    pub fn load_ranks(
        &self,
        ranks: Vec<(PreparedRun, Arc<Peers>)>,
        wanted: &(dyn Fn(&Param) -> bool + Sync),
    ) -> Result<(Vec<Executor>, LoadReport), Error> {
        let (first, _) = &ranks[0];
        let plan = &first.plan;
        self.check(plan, wanted)?;
        let cache = self.cache();
        let calibrated = self.calibrated(first, cache.as_ref(), &|_, param| wanted(param))?;
        let packed = PackedBefore::of(calibrated.as_ref(), cache.as_ref());
        if plan.demand.world.ranks == 1 && !plan.step_plan.moves() {
            let mut executors = Vec::new();
            let mut report = LoadReport::default();
            for (run, peers) in ranks {
                let storage = run.storage()?;
                let wanted = |_, param: &Param| wanted(param);
                report = self.fill_with(&run, &storage, packed, wanted)?;
                executors.push(Executor::new(run, storage, peers)?);
            }
            return Ok((executors, report));
        }
        self.load_staged(ranks, packed, wanted)
    }

    /// Loads complete units into memory shared by the machine's ranks, and copies its part to every
    /// rank.
    fn load_staged(
        &self,
        ranks: Vec<(PreparedRun, Arc<Peers>)>,
        packed: PackedBefore<'_>,
        wanted: &(dyn Fn(&Param) -> bool + Sync),
    ) -> Result<(Vec<Executor>, LoadReport), Error> {
        let (first, _) = &ranks[0];
        let plan = &first.plan;
        let staging = Staging::new(plan);
        let drawn_by = DrawnBy::on_lent_memory(&plan.ops, &plan.device_info);
        let (quantizers, saved) = (plan.quantizers.clone(), plan.saved.clone());
        let initialised = self.initialised(plan, &|index| wanted(&plan.params[index]));
        let mut executors = Vec::with_capacity(ranks.len());
        for (run, peers) in ranks {
            let storage = run.storage()?;
            executors.push(Executor::new(run, storage, peers)?);
        }
        let team = Team::new(executors);
        let mut loaded = team.each(|executor| {
            let stage = staging.open(executor.peers())?;
            let opened = agree(
                executor.peers(),
                "opening the model's files",
                self.tensors(),
            );
            let tensors = opened?;
            let loader = RankLoader {
                params: executor.params(),
                device: &executor.device().0,
                services: self.components.services,
                stage: &stage,
                member: executor.peers(),
                origin: &|param| self.origin(param, tensors.as_ref()),
                packing: &|index| load::packing(&quantizers, &saved, index),
                seed: self.config.run.seed,
                drawn_by,
                observer: self.observer,
                stop: self.stop,
                inspector: self.inspector,
                kept: self.kept,
                calibrated: packed.calibrated,
                cache: packed.cache,
                initialise: self.initialise(&initialised, executor.params(), &quantizers),
            };
            let frozen = self.place_frozen_params(executor, tensors.as_ref(), wanted);
            agree(
                executor.peers(),
                "placing the adapter's frozen params",
                frozen,
            )?;
            let report = loader.load(&|_, param| wanted(param), &mut |run| match run.part {
                Part::Frozen => executor.place_frozen(run.unit, run.bytes),
                _ => executor.place_values(run.unit, run.bytes),
            })?;
            Ok::<_, Error>((stage, report))
        })?;
        let mut executors = team.into_executors();
        let (stage, report) = loaded.swap_remove(0);
        loading_notes::tell(&report, packed.cache, self.observer);
        let copied = stage.layout.copies();
        if !copied.is_empty() {
            for executor in &mut executors {
                let copy = Arc::clone(&stage.copy);
                let memory = copy.memory();
                executor.lend(copy, memory, &copied).during("import")?;
            }
        }
        Ok((executors, report))
    }

    /// The model's files, unless it starts with random weights.
    fn tensors(&self) -> Result<Option<TensorStore>, Error> {
        match self.config.model.init {
            Init::Random => Ok(None),
            Init::Checkpoint => Ok(Some(self.model.tensors()?)),
        }
    }

    /// The user's cache of packed weights.
    fn cache(&self) -> Option<WeightCache> {
        WeightCache::open(self.config.run.weight_cache_gb, self.model.path())
    }

    /// The sites whose params, `wanted` by index, begin from their weight: those of no saved
    /// adapter.
    fn initialised(&self, plan: &RunPlan, wanted: &dyn Fn(usize) -> bool) -> Vec<InitialisedSite> {
        if self.components.saved_adapter.is_some() {
            return Vec::new();
        }
        let is_wanted = |one: &&InitialisedSite| {
            let mut params = one.params.iter();
            params.any(|&param| wanted(param))
        };
        plan.initialised_sites
            .iter()
            .filter(is_wanted)
            .cloned()
            .collect()
    }

    /// How the params of `sites` are initialised; nothing where there are none.
    fn initialise<'o>(
        &'o self,
        sites: &'o [InitialisedSite],
        params: &'o [Param],
        quantizers: &'o HashMap<usize, Chosen<dyn Quantizer>>,
    ) -> Option<Initialise<'o>> {
        let adapter = self.components.adapter.as_ref()?;
        (!sites.is_empty()).then_some(Initialise {
            adapter,
            sites,
            params,
            quantizers,
        })
    }

    /// Loads the `wanted` params, given by index, into `storage`.
    pub fn fill(
        &self,
        run: &PreparedRun,
        storage: &Storage,
        wanted: impl Fn(usize, &Param) -> bool,
    ) -> Result<LoadReport, Error> {
        let cache = self.cache();
        let calibrated = self.calibrated(run, cache.as_ref(), &wanted)?;
        let packed = PackedBefore::of(calibrated.as_ref(), cache.as_ref());
        self.fill_with(run, storage, packed, wanted)
    }

    fn fill_with(
        &self,
        run: &PreparedRun,
        storage: &Storage,
        packed: PackedBefore<'_>,
        wanted: impl Fn(usize, &Param) -> bool,
    ) -> Result<LoadReport, Error> {
        let tensors = self.tensors()?;
        let plan = &run.plan;
        let services = self.components.services;
        let loader = Loader::new(run.device.as_ref(), services, self.config.run.seed)
            .drawing_by(DrawnBy::on_device(&plan.ops));
        let initialised = self.initialised(plan, &|index| wanted(index, &plan.params[index]));
        let mut loader = loader
            .shown_to(self.inspector)
            .keeping(self.kept)
            .calibrated_by(packed.calibrated)
            .caching(packed.cache)
            .initialised_by(self.initialise(&initialised, &plan.params, &plan.quantizers));
        let total = plan.params.len() as u64;
        let total_bytes = plan.params.iter().map(Param::bytes).sum();
        let mut bytes = 0;
        let order = loading_order(plan.params.len(), &initialised);
        for (done, index) in order.into_iter().enumerate() {
            let param = &plan.params[index];
            self.stop.check()?;
            if wanted(index, param) && param.is_of_no_unit() {
                let tensor = FrozenTensor::of(&plan.params, index);
                let origin = self.origin(&plan.params[tensor.index], tensors.as_ref());
                loader.load_frozen(param, tensor, storage.param(index)[0], origin)?;
            } else if wanted(index, param) {
                let origin = self.origin(param, tensors.as_ref());
                let packing = load::packing(&plan.quantizers, &plan.saved, index);
                loader.load((index, param), storage.param(index), origin, packing)?;
            }
            let done = done as u64 + 1;
            bytes += param.bytes();
            self.observer.observe(&Event::LoadProgress {
                param: &param.name,
                done,
                total,
                bytes,
                total_bytes,
            });
        }
        let report = loader.report();
        loading_notes::tell(&report, packed.cache, self.observer);
        Ok(report)
    }
}

/// The indices of `params` params in their order, but those that begin from a weight after it.
fn loading_order(params: usize, initialised: &[InitialisedSite]) -> Vec<usize> {
    let of = |weight: usize| {
        let sites = initialised.iter().filter(move |one| one.weight == weight);
        sites.flat_map(|one| one.params.iter().copied())
    };
    let moved: HashSet<usize> = (0..params).flat_map(of).collect();
    let own = (0..params).filter(|index| !moved.contains(index));
    own.flat_map(|index| std::iter::once(index).chain(of(index)))
        .collect()
}
