//! A program on a device: its storage, its launches in the schedule's order, and the results that
//! are read back.

mod adopt;
mod allocation;
mod collectives;
mod completion;
mod diagnose;
mod disabled_adapter;
mod evaluate;
mod gradients;
mod infer;
mod labelled;
mod lanes;
mod launch;
mod machine_copy;
mod mover;
mod operands;
mod pass;
mod prepared_kernels;
mod prepared_run;
mod replace;
mod since_wait;
mod state;
mod storage;
mod transfer;
mod update;
mod window;
mod work;
mod work_counter;

use std::collections::BTreeSet;
use std::sync::Arc;

use espalier_compile::params::{Dtypes, Param};
use espalier_compile::program::Program;
use espalier_interface::schedule::Placement;
use espalier_interface::{Device, DeviceInfo, Quantizer, Stream};
use espalier_plan::param_groups::{GroupPart, ParamGroups};
use espalier_plan::plan::Generation;
use espalier_plan::shard_layout::ShardLayout;
use espalier_plan::step_plan::StepPlan;
use espalier_registry::Chosen;

use crate::error::{BackendCall, Result};
use crate::measure;
use crate::ranks::Peers;

pub(crate) use allocation::Allocation;
pub use diagnose::NotFiniteTensor;
pub use disabled_adapter::{AdapterAside, disabled_adapter_bytes};
pub use evaluate::{LogitsWindow, OnLogits, TokenLosses};
pub use prepared_kernels::PreparedKernels;
pub use prepared_run::PreparedRun;
pub use state::StatePart;
pub use storage::{Beside, Storage};
pub use transfer::write;
pub use update::Update;
pub use work_counter::DeviceWork;

use lanes::{Behind, Lanes, TaskWaits};
use machine_copy::Lent;
use since_wait::SinceWait;
use work_counter::WorkCounter;

/// What a pass over a micro-batch is for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pass<'a> {
    /// Forward alone, without dropout.
    Evaluate,
    /// Forward and backward.
    Train {
        /// 1 / the step's trained tokens.
        loss_factor: f64,
        /// The numbers of the updates that the schedule makes in the backward pass; without them it
        /// makes none.
        update: Option<&'a Update>,
    },
}

/// The place of a sweep of micro-batches in its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepPosition {
    /// The run's seed.
    pub seed: u64,
    /// The optimizer step, from 0.
    pub step: u64,
    /// Whether it is the first of its step.
    pub first: bool,
    /// Whether it is the last.
    pub last: bool,
}

/// Sums over the trained tokens of a micro-batch.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LossSum {
    /// Sum of the losses.
    pub loss: f64,
    /// Tokens whose likeliest prediction was right.
    pub correct: u64,
    /// Trained tokens.
    pub trained: u64,
}

/// The waits between lanes of both parts of a step plan.
#[derive(Default)]
struct StepWaits {
    micro_batch: TaskWaits,
    update: TaskWaits,
}

/// A program, its storage and its kernels on one device.
pub struct Executor {
    device: Arc<dyn Device>,
    device_info: DeviceInfo,
    program: Program,
    generator: Option<Program>,
    generation: Option<Generation>,
    step_plan: StepPlan,
    shard_layout: ShardLayout,
    peers: Arc<Peers>,
    /// For each lane of the step plan its stream; the first computes.
    streams: Vec<Stream>,
    behind: Behind,
    waits: StepWaits,
    /// For each task of a micro-batch whether it takes part in a pass that does not train.
    evaluates: Vec<bool>,
    since_wait: SinceWait,
    work_counter: WorkCounter,
    params: Vec<Param>,
    dtypes: Dtypes,
    storage: Storage,
    /// Host memory that units are fetched from.
    lent: Option<Lent>,
    prepared: PreparedKernels,
    /// The groups of trained params.
    groups: ParamGroups,
    /// For each unit, the parts of what this rank keeps that the launches of its update cover.
    group_parts: Vec<Vec<GroupPart>>,
    /// Kept for the kernels that call back into a quantizer.
    _quantizers: Vec<Chosen<dyn Quantizer>>,
}

impl Executor {
    /// Joins a run and its storage, for a rank among `peers`. [`crate::load`] writes the weights.
    ///
    /// # Errors
    /// `Error::Plugin` where the device has no stream left for copies.
    pub fn new(run: PreparedRun, storage: Storage, peers: Arc<Peers>) -> Result<Self> {
        let PreparedRun {
            plan,
            device,
            kernels,
        } = run;
        let mut streams = vec![Stream(0)];
        for _ in 1..plan.step_plan.lanes() {
            streams.push(device.stream().during("stream")?);
        }
        let head = plan.program.units.len() - 1;
        let evaluates = work::evaluates(&plan.step_plan.micro_batch, head);
        let part = u64::from(peers.shard().0);
        let units = 0..plan.program.units.len();
        let group_parts = units.map(|unit| plan.group_parts(unit, part)).collect();
        let names = plan.program.units.iter().map(|unit| unit.name.clone());
        let since_wait = SinceWait::new(names);
        Ok(Executor {
            device,
            device_info: plan.device_info,
            program: plan.program,
            generator: plan.generator,
            generation: plan.demand.generation,
            step_plan: plan.step_plan,
            shard_layout: plan.shard_layout,
            peers,
            behind: Behind::all(streams.len()),
            waits: StepWaits::default(),
            evaluates,
            since_wait,
            work_counter: WorkCounter::default(),
            streams,
            params: plan.params,
            dtypes: plan.dtypes,
            storage,
            lent: None,
            prepared: kernels,
            groups: plan.groups,
            group_parts,
            _quantizers: plan.quantizers.into_values().collect(),
        })
    }

    /// This rank's connections to the other ranks.
    pub fn peers(&self) -> &Peers {
        &self.peers
    }

    /// Whether all weights are whole on the device between steps.
    pub fn is_resident(&self) -> bool {
        (0..self.program.units.len()).all(|unit| self.shard_layout.is_resident(unit))
    }

    /// The work of the device for this rank so far.
    pub fn device_work(&self) -> DeviceWork {
        self.work_counter.so_far()
    }

    /// The lengths of sequences, in tokens, at which the model tells positions apart, ascending.
    pub fn length_limits(&self) -> Vec<u64> {
        let by_length = self.program.by_length.iter();
        let limits: BTreeSet<u64> = by_length.map(|which| which.limit()).collect();
        limits.into_iter().collect()
    }

    /// The groups of trained params.
    pub fn groups(&self) -> &ParamGroups {
        &self.groups
    }

    /// The lanes of the step plan on the device.
    fn lanes(&self) -> Lanes<'_> {
        Lanes {
            device: self.device.as_ref(),
            streams: &self.streams,
            behind: &self.behind,
            since_wait: &self.since_wait,
        }
    }

    /// The compute stream is about to get work, between walks, on bytes that other lanes may use.
    /// That work runs after their earlier work and before their later work.
    fn changes_state(&self) -> Result<()> {
        self.behind.fall(self.streams.len());
        self.lanes().catch_up()
    }

    /// The location of each unit's bytes between steps.
    pub fn placements(&self) -> &[Placement] {
        &self.shard_layout.placements
    }

    /// The run's params.
    pub fn params(&self) -> &[Param] {
        &self.params
    }

    /// The device and its description.
    pub fn device(&self) -> (Arc<dyn Device>, DeviceInfo) {
        (Arc::clone(&self.device), self.device_info.clone())
    }

    /// Bytes that the device holds for the run in memory of its own; 0 where it is the host.
    pub fn own_bytes(&self) -> u64 {
        if self.device_info.shares_host_memory {
            return 0;
        }
        self.storage.bytes()
    }

    /// Operations per second of the device's own matrix product, timed between two steps in the
    /// arena. None where the arena is too small or the device fails.
    pub fn product_rate(&self) -> Option<f64> {
        let (device, room) = (self.device.as_ref(), self.storage.arena());
        let rate = measure::gemm_rate_within(device, self.dtypes.compute, room);
        rate.ok().flatten()
    }
}
