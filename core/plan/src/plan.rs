//! Config, components and a model's `config.json` -> everything known of a run before the first weight is read.

mod arithmetic;
pub mod assumed;
pub mod flops;
mod host_memory;
mod idle;
mod moved;
pub mod speeds;
pub mod table;
mod timeline;
pub mod traffic;
mod work;
mod world_memory;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use espalier_compile::arena::aligned;
use espalier_compile::params::{self, Dtypes, Param, Training};
use espalier_compile::program::{self, CacheShape, Limits, OperandPlace, Program, SavedBlock};
use espalier_compile::recompute::Recompute;
use espalier_compile::splice;
use espalier_compile::unit_runs::UnitRuns;
use espalier_config::{ComputeType, Config, ParamType, pattern_matches};
use espalier_interface::adaptation::{Adaptation, Site};
use espalier_interface::format::Format;
use espalier_interface::model::{Model, UnitKind};
use espalier_interface::schedule::{ShardingRequest, UnitBytes};
use espalier_interface::{DType, DeviceInfo, Quantizer, Sharding, WeightLayout};
use espalier_registry::select::{Components, PackedCheckpoint};
use espalier_registry::{Chosen, answer};
use espalier_system::failure::UsageError;
use espalier_system::memory::{self, OutOfMemory};
use espalier_system::world::World;

use crate::Error;
use crate::packing::{SavedParam, packed_weights};
use crate::shard_layout::ShardLayout;
use crate::step_plan::StepPlan;
use crate::storage_layout::StorageLayout;

pub use arithmetic::Arithmetic;
pub use assumed::Assumed;
pub use flops::Flops;
pub use host_memory::HostMemory;
pub use idle::IdleRanks;
pub use moved::{Moved, Mover};
pub use speeds::{GivenSpeeds, Source, Speeds};
pub use table::MemoryPlan;
pub use timeline::{StepTime, Timeline};
pub use traffic::Traffic;
pub use work::Work;
pub use world_memory::WorldMemory;

/// The most that a micro-batch of the run holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchLimits {
    /// Packed tokens.
    pub max_tokens: u64,
    /// Sequences.
    pub max_sequences: u64,
}

/// What a model is loaded for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To train it, or an adapter on it.
    Train,
    /// To read off losses: nothing is trained, and the plan holds no memory of training.
    Evaluate,
    /// To generate text; no memory of training either.
    Generate,
}

/// What a run that generates has at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generation {
    /// Sequences, and the tokens of each, prompt included.
    pub cache: CacheShape,
    /// Most tokens of one pass: longer prompts are taken in parts.
    pub max_tokens: u64,
}

/// What a plan is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// What the model is loaded for.
    pub purpose: Purpose,
    /// The largest micro-batch of training and evaluation.
    pub limits: BatchLimits,
    /// What is generated, beside training or evaluation or alone.
    pub generation: Option<Generation>,
    /// The ranks, and which of them this process has.
    pub world: World,
    /// Most micro-batches that a rank has in a step; 0 where that is not known.
    pub micro_batches: u64,
}

/// A run before its weights are read.
pub struct RunPlan {
    /// The model as data.
    pub model: Model,
    /// Its sites.
    pub sites: Vec<Site>,
    /// What the adapter adds.
    pub adaptation: Adaptation,
    /// All params.
    pub params: Vec<Param>,
    /// The quantizer of each packed param.
    pub quantizers: HashMap<usize, Chosen<dyn Quantizer>>,
    /// Where the checkpoint holds params that are packed already.
    pub saved: HashMap<usize, SavedParam>,
    /// Kernels and arena.
    pub program: Program,
    /// What generates beside it, in the same arena, while no step is at work there.
    pub generator: Option<Program>,
    /// What the sharding strategy was asked to place.
    pub request: ShardingRequest,
    /// The order of a step, laid out.
    pub step_plan: StepPlan,
    /// How what it moves is cut among ranks.
    pub shard_layout: ShardLayout,
    /// Dtypes.
    pub dtypes: Dtypes,
    /// What is trained.
    pub training: Training,
    /// What the plan was made for.
    pub demand: Demand,
    /// What the device says of itself.
    pub device_info: DeviceInfo,
    /// Bytes that the device's kernels need beside their operands, once they are known.
    pub workspace_bytes: u64,
    /// Memory by category.
    pub memory: MemoryPlan,
    /// Operations of a step.
    pub flops: Flops,
}

/// The dtypes that a config asks for.
pub fn dtypes(config: &Config) -> Dtypes {
    let (compute, reduce) = match config.model.compute {
        ComputeType::Bf16 => (DType::BF16, DType::F32),
        ComputeType::F32 => (DType::F32, DType::F32),
        ComputeType::F64 => (DType::F64, DType::F64),
    };
    let params = match (config.model.compute, config.model.params) {
        (ComputeType::F64, _) => DType::F64,
        (_, ParamType::F32) => DType::F32,
        (_, ParamType::Bf16) => DType::BF16,
    };
    Dtypes {
        compute,
        reduce,
        params,
    }
}

/// Makes the plan of a run. The workspace of its kernels is not in it: see [`RunPlan::set_workspace`].
///
/// # Errors
/// A model that contradicts itself, options that fit no site, a schedule that is not valid.
pub fn make(
    config: &Config,
    demand: Demand,
    model: Model,
    components: &Components,
    device_info: DeviceInfo,
    program_bytes: u64,
) -> Result<RunPlan, Error> {
    let family = &components.family;
    answer::model(family, &model)?;
    let sites = splice::sites(&model);
    let adaptation = match &components.adapter {
        Some(adapter) => answer::adaptation(adapter, &sites)?,
        None => Adaptation::default(),
    };
    let training = match (demand.purpose, &components.adapter) {
        (Purpose::Evaluate | Purpose::Generate, _) => Training::Nothing,
        (Purpose::Train, Some(_)) => Training::Adapter,
        (Purpose::Train, None) => Training::Full,
    };
    let dtypes = dtypes(config);
    let Packing {
        formats,
        quantizers,
        saved,
    } = packing(config, &model, &sites, components, training)?;
    let kept = config.model.keep_f32.iter();
    let keep = |name: &str| kept.clone().any(|pattern| pattern_matches(pattern, name));
    let mut params = params::params(&model, &adaptation, &formats, &keep, dtypes, training);
    let mut compile = |limits: Limits| {
        program::compile(&model, &sites, &adaptation, &mut params, dtypes, limits)
            .map_err(|error| family.failed("graph", error))
    };
    let generating = demand.generation.map(|generation| Limits {
        max_tokens: generation.max_tokens,
        max_sequences: generation.cache.slots,
        recompute: Recompute::None,
        cache: Some(generation.cache),
    });
    let (program, generator) = match (demand.purpose, generating) {
        (Purpose::Generate, Some(limits)) => (compile(limits)?, None),
        (_, generating) => {
            let limits = Limits {
                max_tokens: demand.limits.max_tokens,
                max_sequences: demand.limits.max_sequences,
                recompute: config.model.recompute,
                cache: None,
            };
            (compile(limits)?, generating.map(compile).transpose()?)
        }
    };
    let request = sharding_request(&program, &params, dtypes, &device_info, demand);
    let (shard_layout, step_plan) = lay_out(
        &components.sharding,
        &request,
        (&params, &program.blocks),
        demand.world,
        dtypes,
    )?;
    let programs = (&program, generator.as_ref());
    let loading = loading_bytes(&params, &quantizers, &saved)?;
    let layout = StorageLayout {
        units: program.units.len(),
        params: &params,
        dtypes,
        shard_layout: &shard_layout,
        region_bytes: step_plan.region_bytes,
        batch: demand.batch(),
        scratch: [0, 0],
    };
    let memory = MemoryPlan::new(programs, &layout.sizes(), 0, [program_bytes, loading]);
    let flops = Flops::of(&program);
    Ok(RunPlan {
        model,
        sites,
        adaptation,
        params,
        quantizers,
        saved,
        program,
        generator,
        request,
        step_plan,
        shard_layout,
        dtypes,
        training,
        demand,
        device_info,
        workspace_bytes: 0,
        memory,
        flops,
    })
}

/// What a strategy makes of a run: how its bytes are cut, and the order of a step.
///
/// # Errors
/// What the strategy reports; a schedule that is not valid.
fn lay_out(
    sharding: &Chosen<dyn Sharding>,
    request: &ShardingRequest,
    (params, blocks): (&[Param], &[SavedBlock]),
    world: World,
    dtypes: Dtypes,
) -> Result<(ShardLayout, StepPlan), Error> {
    let schedule = answer::schedule(sharding, request)?;
    let shard_layout = ShardLayout::new(&schedule, params, blocks, world);
    let step_plan = StepPlan::of(&schedule, request, &shard_layout.region_sizes(dtypes))
        .map_err(|error| sharding.failed("schedule", error))?;
    Ok((shard_layout, step_plan))
}

impl Demand {
    /// Most tokens and sequences of any pass.
    pub fn batch(&self) -> [u64; 2] {
        let BatchLimits {
            max_tokens,
            max_sequences,
        } = self.limits;
        match self.generation {
            None => [max_tokens, max_sequences],
            Some(generation) => [
                max_tokens.max(generation.max_tokens),
                max_sequences.max(generation.cache.slots),
            ],
        }
    }
}

impl RunPlan {
    /// Bytes that the run can have beside what the program holds already.
    pub fn available(&self) -> u64 {
        if self.device_info.shares_host_memory {
            memory::available_bytes().unwrap_or(u64::MAX)
        } else {
            self.device_info.free_bytes
        }
    }

    /// Refuses a run that does not fit into `available` bytes.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] with both numbers.
    pub fn check(&self, available: u64) -> Result<(), Error> {
        self.check_needed(self.needed(), available)?;
        let (device, free) = (self.memory.on_device(), self.device_info.free_bytes);
        if device <= free {
            Ok(())
        } else {
            Err(Error::OutOfMemory(OutOfMemory {
                kind: self.device_info.name.clone(),
                needed: espalier_interface::bytes::Bytes(device),
                available: espalier_interface::bytes::Bytes(free),
            }))
        }
    }

    /// What the run needs of the memory that is [`RunPlan::available`]: of a machine's all its ranks together, of a device's
    /// one rank. What the program holds already is not among it.
    pub fn needed(&self) -> u64 {
        if self.device_info.shares_host_memory {
            let host = self.host_memory();
            host.needed() - host.program
        } else {
            self.memory.on_device()
        }
    }

    /// What a machine's own memory must hold for all its ranks.
    pub fn host_memory(&self) -> HostMemory {
        HostMemory::of(self)
    }

    /// Whether a rank alone has all of its machine: nothing of it stays on the host beside its device.
    pub fn is_alone(&self) -> bool {
        let sizes = self.storage_layout().sizes();
        let weights = sizes.machine_copy + sizes.frozen_on_host;
        let on_host = weights + sizes.trained_on_host + sizes.saved_on_host;
        self.demand.world == World::ONE && on_host == 0
    }

    /// The same run under another strategy, to plan only: kernels stay those of the strategy before.
    ///
    /// # Errors
    /// What the strategy reports; a schedule that is not valid.
    pub fn shard_by(&mut self, sharding: &Chosen<dyn Sharding>) -> Result<(), Error> {
        let world = self.demand.world;
        let (shard_layout, step_plan) = lay_out(
            sharding,
            &self.request,
            (&self.params, &self.program.blocks),
            world,
            self.dtypes,
        )?;
        (self.shard_layout, self.step_plan) = (shard_layout, step_plan);
        self.memory = self.memory.placed_as(&self.storage_layout().sizes());
        Ok(())
    }

    /// The time of a step of `work` at `speeds`.
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

    /// As [`RunPlan::check`], of a run that needs `needed` bytes beside the program's.
    ///
    /// # Errors
    /// As [`RunPlan::check`].
    pub fn check_needed(&self, needed: u64, available: u64) -> Result<(), Error> {
        if needed <= available {
            return Ok(());
        }
        let host = self.device_info.shares_host_memory;
        Err(Error::OutOfMemory(OutOfMemory {
            kind: if host {
                "host".to_owned()
            } else {
                self.device_info.name.clone()
            },
            needed: espalier_interface::bytes::Bytes(needed),
            available: espalier_interface::bytes::Bytes(available),
        }))
    }

    /// Counts the workspace of the kernels, which their device has prepared.
    pub fn set_workspace(&mut self, bytes: u64) {
        self.workspace_bytes = bytes;
        self.memory.workspace = bytes;
    }

    /// What the run's storage follows from.
    pub fn storage_layout(&self) -> StorageLayout<'_> {
        let generator = self.generator.as_ref();
        let arena = self.program.arena.bytes() + self.shard_layout.staying_bytes();
        let arena = generator.map_or(arena, |generator| arena.max(generator.arena.bytes()));
        StorageLayout {
            units: self.program.units.len(),
            params: &self.params,
            dtypes: self.dtypes,
            shard_layout: &self.shard_layout,
            region_bytes: self.step_plan.region_bytes,
            batch: self.demand.batch(),
            scratch: [arena, self.workspace_bytes],
        }
    }

    /// Elements of all params of the model and the adapter, and of the trained ones.
    pub fn num_params(&self) -> (u64, u64) {
        let all = self.params.iter().map(Param::elements).sum();
        let trained = self
            .params
            .iter()
            .filter(|p| p.trainable)
            .map(Param::elements)
            .sum();
        (all, trained)
    }

    /// Bytes by how weights are stored: `nf4`, `bf16` and so on.
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

/// How weights are packed, by the indices of their params.
#[derive(Default)]
struct Packing {
    formats: HashMap<usize, Format>,
    quantizers: HashMap<usize, Chosen<dyn Quantizer>>,
    saved: HashMap<usize, SavedParam>,
}

/// The format of every weight that is packed: the linears of layers, unless `[[sites]]` or the checkpoint say otherwise.
fn packing(
    config: &Config,
    model: &Model,
    sites: &[Site],
    components: &Components,
    training: Training,
) -> Result<Packing, Error> {
    let packed = components.quantizers.packed();
    let weights = packed_weights(model, sites, |site| components.quantizer_of(config, site))?;
    let mut made = Packing::default();
    for weight in weights {
        let site = &sites[weight.site];
        if training == Training::Full {
            return Err(packed_and_trained(site, packed));
        }
        if packed.is_some() {
            let saved = SavedParam::new(site, &weight)?;
            made.saved.insert(weight.param, saved);
        }
        made.quantizers
            .insert(weight.param, weight.quantizer.clone());
        made.formats.insert(weight.param, weight.format);
    }
    Ok(made)
}

/// The refusal to train all of a model of which a weight is packed.
fn packed_and_trained(site: &Site, packed: Option<&PackedCheckpoint>) -> Error {
    let (message, next_step) = match packed {
        Some(packed) => (
            format!(
                "the checkpoint is packed by `{}`, and packed weights cannot be trained themselves",
                packed.component()
            ),
            "add an adapter (--plugins lora), or start from the model's original weights",
        ),
        None => (
            format!(
                "`{}` is to be packed and trained at once: a quantizer was chosen, and no adapter",
                site.name
            ),
            "add an adapter (--plugins nf4,lora), or leave the quantizer out",
        ),
    };
    Error::Usage(UsageError {
        message,
        next_step: next_step.to_owned(),
    })
}

/// The sizes that a sharding strategy places.
fn sharding_request(
    program: &Program,
    params: &[Param],
    dtypes: Dtypes,
    device: &DeviceInfo,
    demand: Demand,
) -> ShardingRequest {
    let units = program.units.iter().enumerate().map(|(index, unit)| {
        let (mut forward, mut backward) =
            (reads(&unit.forward, params), reads(&unit.backward, params));
        if unit.kind == UnitKind::Head {
            forward.append(&mut backward);
        }
        let elements = UnitRuns::of(params, index).elements;
        let frozen = params.iter().filter(|p| !p.trainable && p.unit == index);
        UnitBytes {
            name: unit.name.clone(),
            frozen: frozen.map(Param::bytes).sum(),
            trainable: elements * dtypes.params.bytes(),
            gradients: elements * dtypes.reduce.bytes(),
            optimizer: 2 * elements * dtypes.reduce.bytes(),
            saved: program.blocks[index].bytes,
            forward_reads: forward.into_iter().collect(),
            backward_reads: backward.into_iter().collect(),
        }
    });
    ShardingRequest {
        units: units.collect(),
        world: demand.world.ranks,
        ranks_per_machine: demand.world.ranks_per_machine(),
        micro_batches: u32::try_from(demand.micro_batches).unwrap_or(0),
        device_bytes: Some(device.free_bytes),
        host_bytes: memory::available_bytes(),
    }
}

/// The units whose params or gradients `steps` work on.
fn reads(steps: &[program::Step], params: &[Param]) -> BTreeSet<usize> {
    let operands = steps.iter().flat_map(|step| &step.operands);
    let units = operands.filter_map(|operand| match *operand {
        OperandPlace::Param(param) | OperandPlace::Gradient(param) => Some(params[param].unit),
        OperandPlace::Value(_) => None,
    });
    units.collect()
}

/// The most that loading one weight takes: itself in f32, and what its encoder declares; parts where it is packed already.
fn loading_bytes(
    params: &[Param],
    quantizers: &HashMap<usize, Chosen<dyn Quantizer>>,
    saved: &HashMap<usize, SavedParam>,
) -> Result<u64, Error> {
    let mut most = 0;
    for (index, param) in params.iter().enumerate() {
        if let Some(quantizer) = quantizers
            .get(&index)
            .filter(|_| !saved.contains_key(&index))
        {
            let shape = param.matrix().expect("a packed param is a matrix");
            let workspace = answer::encode_workspace(quantizer, shape)?;
            most = most.max(aligned(param.elements() * 4) + workspace);
        }
    }
    Ok(most)
}
