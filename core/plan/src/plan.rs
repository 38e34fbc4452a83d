//! Config, components and a model's `config.json` -> the plan of a run, before the first weight is
//! read.

mod arithmetic;
pub mod assumed;
mod backward_updates;
mod calibration;
mod demand;
pub mod flops;
mod host_memory;
mod idle;
mod labelled;
mod launches;
mod memory_check;
mod moved;
mod numbers;
mod packed_params;
mod programs;
mod sharding;
pub mod speeds;
pub mod table;
mod timeline;
pub mod traffic;
mod work;
mod world_memory;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use espalier_compile::decompose::BackendOps;
use espalier_compile::params::{self, Dtypes, NamedWeights, Param, Training};
use espalier_compile::program::{AdaptedModel, NoProgram, Program};
use espalier_compile::splice;
use espalier_config::{Config, pattern_matches};
use espalier_interface::adaptation::{Adaptation, Site};
use espalier_interface::graph::batch::LengthPositions;
use espalier_interface::model::Model;
use espalier_interface::schedule::ShardingRequest;
use espalier_interface::{DeviceInfo, Quantizer, Sharding, WeightLayout};
use espalier_registry::select::Components;
use espalier_registry::{Chosen, answer};

use self::numbers::optimizer;
use self::packed_params::PackedParams;
use self::programs::Programs;
use crate::Error;
use crate::base_change;
use crate::initialised_sites::{
    InitialisedSite, frozen_loading_bytes, initialised_sites, loading_bytes,
};
use crate::packing::SavedParam;
use crate::param_groups::{GroupPart, ParamGroups};
use crate::shard_layout::{ShardLayout, Trained};
use crate::staging;
use crate::step_plan::StepPlan;
use crate::storage_layout::StorageLayout;
use crate::trained_weights::TrainedWeights;

pub use arithmetic::Arithmetic;
pub use assumed::{Assumed, HeadRows};
pub use calibration::CalibrationPlan;
pub use demand::{BatchLimits, Demand, Generation, HostBytes, Purpose};
pub use flops::Flops;
pub use host_memory::HostMemoryPlan;
pub use idle::IdleRanks;
pub use labelled::Labelled;
pub use launches::{LaunchCost, Launches};
pub use moved::{Moved, Mover};
pub use numbers::dtypes;
pub use speeds::{GivenSpeeds, KernelRates, Source, Speeds};
pub use table::MemoryPlan;
pub use timeline::{StepTime, Timeline};
pub use traffic::Traffic;
pub use work::Work;
pub use world_memory::WorldMemory;

/// The plan of a run, made before its weights are read.
pub struct RunPlan {
    /// The model's description.
    pub model: Model,
    /// Its sites.
    pub sites: Vec<Site>,
    /// The params and graphs that the adapter adds.
    pub adaptation: Adaptation,
    /// All params: first the model's, then the adapter's.
    pub params: Vec<Param>,
    /// The quantizer of each packed param, by the param's index.
    pub quantizers: HashMap<usize, Chosen<dyn Quantizer>>,
    /// The tensors of each param that the checkpoint holds packed, by the param's index.
    pub saved: HashMap<usize, SavedParam>,
    /// The sites whose adapter params begin from their weight.
    pub initialised_sites: Vec<InitialisedSite>,
    /// Kernels and arena of the run's purpose.
    pub program: Program,
    /// The program that generates text in the same arena between two steps, if any.
    pub generator: Option<Program>,
    /// The request that the sharding strategy answered.
    pub request: ShardingRequest,
    /// The tasks of a step, in order, with their regions of memory.
    pub step_plan: StepPlan,
    /// How params, gradients and optimizer state are cut among ranks.
    pub shard_layout: ShardLayout,
    /// The ops of the backend.
    pub ops: BackendOps,
    /// Dtypes of the run.
    pub dtypes: Dtypes,
    /// The trained params.
    pub training: Training,
    /// Their groups, each with its learning rate and decay.
    pub groups: ParamGroups,
    /// The demand that the plan fulfils.
    pub demand: Demand,
    /// The device's description of itself.
    pub device_info: DeviceInfo,
    /// Whether there are several ranks, and the host makes their collective calls.
    pub host_calls: bool,
    /// Whether those pass through pinned memory, since the host does not reach the device's memory.
    pub stages_calls: bool,
    /// Workspace of the device's kernels in bytes; 0 until [`RunPlan::set_workspace`].
    pub workspace_bytes: u64,
    /// Calibration of the quantizers that want statistics, if any does.
    pub calibration: Option<CalibrationPlan>,
    /// Memory by category.
    pub memory: MemoryPlan,
    /// Floating-point operations of a step.
    pub flops: Flops,
}

/// Makes the plan of a run, without the workspace of its kernels: see [`RunPlan::set_workspace`].
/// `trained` are the weights of the model that are trained without an adapter, `host` is the memory
/// of this machine.
///
/// # Errors
/// [`Error::Plugin`] for a model, an adaptation, a format, a graph or a schedule that is not valid.
/// [`Error::Usage`] where a packed weight is to be trained itself, or where options fit no site.
pub fn make(
    config: &Config,
    demand: Demand,
    model: Model,
    trained: &TrainedWeights,
    components: &Components,
    device_info: DeviceInfo,
    host: HostBytes,
) -> Result<RunPlan, Error> {
    let family = &components.family;
    answer::model(family, &model)?;
    let packable = splice::sites(&model);
    let adapter = components.adapter.as_ref();
    let (sites, adaptation) = answer::adapted(adapter, &model)?;
    base_change::refuse(components, &adaptation)?;
    let training = demand.purpose.training(adapter.is_some(), trained)?;
    let dtypes = dtypes(config);
    let packed = PackedParams::of(config, &model, &packable, components, (training, trained))?;
    let calibration = CalibrationPlan::of(config, &model, &packed, &device_info)?;
    let mut params = run_params(config, (&model, &adaptation), &packed, (training, trained));
    let ops = answer::ops(&components.backend)?;
    let adapted = AdaptedModel {
        model: &model,
        sites: &sites,
        adaptation: &adaptation,
        dtypes,
        ops: &ops,
    };
    let recompute = config.model.recompute;
    let programs = Programs::compile(&adapted, &mut params, demand, recompute, &device_info);
    let programs = programs.map_err(|why| no_program(components, why))?;
    let (program, generator) = (programs.main, programs.generator);
    let optimizer = optimizer(config, dtypes)?;
    let trained = Trained {
        params: &params,
        optimizer: &optimizer,
        dtypes,
    };
    let request = sharding::request(&program, trained, &device_info, demand, host);
    let request = backward_updates::requested(config, training, request)?;
    let strategy = &components.sharding;
    let (shard_layout, step_plan) = sharding::lay_out(strategy, &request, trained, &program)?;
    let initialised_sites = initialised_sites(&model, &sites, &adaptation);
    let initialising = loading_bytes(&initialised_sites, components, &params)?;
    let frozen = frozen_loading_bytes(&params);
    let loading = initialising.max(frozen).max(packed.loading_bytes(&params)?);
    let of_batch = (demand, &program.by_length[..]);
    let layout = parts_of_step((&params, dtypes), &shard_layout, &step_plan, of_batch);
    let kernels_and_groups = [0, group_bytes(&demand, &shard_layout)];
    let programs = (&program, generator.as_ref());
    let before = [host.program, loading];
    let memory = MemoryPlan::new(programs, &layout.sizes(), kernels_and_groups, before);
    let memory = memory.calibrating(calibration.as_ref());
    let flops = Flops::of(&program);
    let groups = ParamGroups::of(&config.optim, &params, training);
    let host_calls = demand.world.ranks > 1 && demand.device_group_bytes.is_none();
    Ok(RunPlan {
        model,
        sites,
        adaptation,
        params,
        quantizers: packed.quantizers,
        saved: packed.saved,
        initialised_sites,
        program,
        generator,
        request,
        step_plan,
        shard_layout,
        ops,
        dtypes,
        training,
        groups,
        demand,
        host_calls,
        stages_calls: host_calls && !device_info.shares_host_memory,
        device_info,
        workspace_bytes: 0,
        calibration,
        memory,
        flops,
    })
}

/// The layout of a run's buffers without arena and kernels.
fn parts_of_step<'a>(
    (params, dtypes): (&'a [Param], Dtypes),
    shard_layout: &'a ShardLayout,
    step_plan: &StepPlan,
    (demand, by_length): (Demand, &'a [LengthPositions]),
) -> StorageLayout<'a> {
    StorageLayout {
        units: shard_layout.flat_params.len(),
        params,
        dtypes,
        shard_layout,
        region_bytes: step_plan.region_bytes,
        staging_bytes: 0,
        batch: demand.batch(),
        by_length,
        scratch: [0, 0],
    }
}

/// Bytes of a device that the collective of its groups takes: of all ranks, of those with the same
/// weights' parts, and of those that share weights, as far as there are several.
fn group_bytes(demand: &Demand, shard_layout: &ShardLayout) -> u64 {
    let ranks = u64::from(demand.world.ranks);
    let parts = shard_layout.parts;
    let several = [ranks, parts, ranks / parts].map(|members| u64::from(members > 1));
    demand.device_group_bytes.unwrap_or(0) * several.iter().sum::<u64>()
}

/// All params of a run.
fn run_params(
    config: &Config,
    (model, adaptation): (&Model, &Adaptation),
    packed: &PackedParams,
    (training, trained): (Training, &TrainedWeights),
) -> Vec<Param> {
    let kept = config.model.keep_f32.iter();
    let named = NamedWeights {
        keep_f32: &|name| kept.clone().any(|pattern| pattern_matches(pattern, name)),
        trained: &|name| trained.are_named(name),
    };
    let formats = &packed.formats;
    params::params(model, adaptation, formats, named, dtypes(config), training)
}

/// The failure of the component for which there is no program.
fn no_program(components: &Components, why: NoProgram) -> Error {
    let failure = match why {
        NoProgram::Graph(error) => components.family.failed("graph", error),
        NoProgram::Lacking(error) => components.backend.failed("ops", error),
    };
    failure.into()
}

impl RunPlan {
    /// Replaces the sharding strategy, to plan only: the kernels are not compiled again.
    ///
    /// # Errors
    /// [`Error::Plugin`] where the strategy fails or its schedule is not valid.
    pub fn shard_by(&mut self, sharding: &Chosen<dyn Sharding>) -> Result<(), Error> {
        let trained = Trained {
            params: &self.params,
            optimizer: &self.shard_layout.optimizer,
            dtypes: self.dtypes,
        };
        let (shard_layout, step_plan) =
            sharding::lay_out(sharding, &self.request, trained, &self.program)?;
        (self.shard_layout, self.step_plan) = (shard_layout, step_plan);
        let MemoryPlan {
            workspace,
            program,
            loading,
            ..
        } = self.memory;
        let groups = group_bytes(&self.demand, &self.shard_layout);
        self.memory = MemoryPlan::new(
            (&self.program, self.generator.as_ref()),
            &self.storage_layout().sizes(),
            [workspace, groups],
            [program, loading],
        );
        self.memory = self.memory.calibrating(self.calibration.as_ref());
        Ok(())
    }

    /// The predicted time of a step of `work` at `speeds`.
    pub fn step_time(&self, work: Work, speeds: Speeds) -> StepTime {
        let timeline = Timeline {
            mover: Mover::of(self),
            step_plan: &self.step_plan,
            flops: Flops::of_units(&self.program),
            traffic: Traffic::of_units(&self.program),
            updates: traffic::of_updates(&self.shard_layout, self.dtypes),
            speeds,
            work,
        };
        timeline.step()
    }

    /// The parts of a unit's trainable run that the launches of its update cover on a rank, counted
    /// from the begin of what the rank keeps; `part` is the rank's number among those that share
    /// what is cut.
    pub fn group_parts(&self, unit: usize, part: u64) -> Vec<GroupPart> {
        let ShardLayout {
            flat_params,
            optimizer,
            ..
        } = &self.shard_layout;
        let own = self.shard_layout.own_run(unit, part);
        self.groups.parts(&flat_params[unit], optimizer, &own)
    }

    /// Sets the workspace of the kernels, in bytes, once the device has prepared them.
    pub fn set_workspace(&mut self, bytes: u64) {
        self.workspace_bytes = bytes;
        self.memory.workspace = bytes;
    }

    /// The ops that run by their decomposition, in any program of the run.
    pub fn decomposed(&self) -> Vec<&str> {
        let generator = self.generator.iter().flat_map(|one| &one.decomposed);
        let all: BTreeSet<&String> = self.program.decomposed.iter().chain(generator).collect();
        all.into_iter().map(String::as_str).collect()
    }

    /// The layout of the run's buffers.
    pub fn storage_layout(&self) -> StorageLayout<'_> {
        let generator = self.generator.as_ref();
        let arena = self.program.arena.bytes() + self.shard_layout.behind_arena_bytes();
        let arena = generator.map_or(arena, |generator| arena.max(generator.arena.bytes()));
        StorageLayout {
            units: self.program.units.len(),
            params: &self.params,
            dtypes: self.dtypes,
            shard_layout: &self.shard_layout,
            region_bytes: self.step_plan.region_bytes,
            staging_bytes: self.staging_bytes(),
            batch: self.demand.batch(),
            by_length: &self.program.by_length,
            scratch: [arena, self.workspace_bytes],
        }
    }

    /// Bytes of pinned memory that a rank's collective calls pass through: none where the host
    /// reaches the device's memory.
    fn staging_bytes(&self) -> u64 {
        if !self.stages_calls {
            return 0;
        }
        staging::bytes(&self.step_plan, &self.shard_layout, self.dtypes)
    }

    /// Elements of all params of model and adapter, and of the trainable ones. Parts of frozen
    /// params are not counted again.
    pub fn num_params(&self) -> (u64, u64) {
        let whole = self.params.iter().filter(|p| p.part_of.is_none());
        let all = whole.map(Param::elements).sum();
        let trained = self
            .params
            .iter()
            .filter(|p| p.trainable)
            .map(Param::elements)
            .sum();
        (all, trained)
    }

    /// Bytes of the frozen params by how they are stored: `nf4`, `bf16` and so on.
    pub fn weights_by_layout(&self) -> BTreeMap<String, u64> {
        let mut bytes = BTreeMap::new();
        for param in self.params.iter().filter(|param| !param.trainable) {
            let layout = match &param.layout {
                WeightLayout::Packed(format) => format.quantizer.clone(),
                WeightLayout::Dense(dtype) => dtype.name(),
            };
            *bytes.entry(layout).or_insert(0) += param.bytes();
        }
        bytes
    }
}
