//! The ranks of a machine and the places of their bytes -> the host memory of the machine, by
//! category.

use serde::{Deserialize, Serialize};

use super::RunPlan;
use crate::stage_layout::StageLayout;

/// Bytes of host memory by category, of all ranks of a machine, or of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostMemoryPlan {
    /// Frozen weights kept on the host: one copy per machine, or the ranks' parts.
    pub weights: u64,
    /// Trainable params, reduced gradients and optimizer state that are kept on the host.
    pub trained: u64,
    /// Saved activations that were moved to the host until their backward pass.
    pub saved_activations: u64,
    /// Pinned memory that collective calls pass through on devices with memory of their own.
    pub staging: u64,
    /// Bytes of ranks on devices that use host memory.
    pub devices: u64,
    /// The program itself, counted once per process.
    pub program: u64,
    /// While loading: per rank a weight in f32 and the encoder's workspace, and the weights that
    /// are being distributed.
    pub loading: u64,
    /// Peak while loading.
    pub loading_peak: u64,
    /// Available host memory; `None` where unknown.
    pub available: Option<u64>,
}

impl HostMemoryPlan {
    /// The memory of a machine of the plan's world.
    pub fn of(plan: &RunPlan) -> Self {
        let world = plan.demand.world;
        HostMemoryPlan::of_ranks(plan, world.ranks_per_machine(), world.processes_per_machine)
    }

    /// The memory of a process of the plan's world. All processes of a machine count its one copy
    /// of the weights.
    pub fn of_process(plan: &RunPlan) -> Self {
        HostMemoryPlan::of_ranks(plan, plan.demand.world.ranks_per_process(), 1)
    }

    fn of_ranks(plan: &RunPlan, ranks: u32, processes: u32) -> Self {
        let (rank, sizes) = (&plan.memory, plan.storage_layout().sizes());
        let ranks = u64::from(ranks);
        let shares = plan.device_info.shares_host_memory;
        let on_device = |bytes: u64| if shares { ranks * bytes } else { 0 };
        let mut host = HostMemoryPlan {
            weights: sizes.machine_copy + ranks * sizes.frozen_on_host,
            trained: ranks * sizes.trained_on_host,
            saved_activations: ranks * sizes.saved_on_host,
            staging: ranks * sizes.staging,
            devices: on_device(rank.on_device()),
            program: rank.program * u64::from(processes),
            loading: ranks * rank.loading + on_the_way(plan),
            ..HostMemoryPlan::default()
        };
        let placed = on_device(rank.weights + rank.trainable);
        let kept = host.weights + host.trained + host.staging + placed;
        // Each process calibrates by itself, before anything is in its place.
        let calibration = rank.calibration * u64::from(processes);
        host.loading_peak = host.program + (kept + host.loading).max(calibration);
        host
    }

    /// The categories of a step with their names, in the order in which they are printed.
    pub fn categories(&self) -> [(&'static str, u64); 6] {
        [
            ("weights", self.weights),
            ("trained, and its state", self.trained),
            ("saved activations", self.saved_activations),
            ("collective calls", self.staging),
            ("devices", self.devices),
            ("program", self.program),
        ]
    }

    /// Peak of a training step.
    pub fn step_peak(&self) -> u64 {
        self.categories().iter().map(|(_, bytes)| bytes).sum()
    }

    /// Peak of the run: of a step or of loading.
    pub fn needed(&self) -> u64 {
        self.step_peak().max(self.loading_peak)
    }

    /// Whether the peak is at most `available`; true where unknown.
    pub fn fits(&self) -> bool {
        self.available
            .is_none_or(|available| self.needed() <= available)
    }
}

/// Most bytes being distributed while loading. With several ranks, a run of a unit, of which every
/// rank takes its part. With one rank, a packed weight, or nothing where it is encoded in place.
fn on_the_way(plan: &RunPlan) -> u64 {
    if !plan.is_alone() {
        return StageLayout::new(&plan.shard_layout, plan.dtypes).passing_bytes;
    }
    let packed = plan.quantizers.keys();
    let packed = packed.map(|&index| plan.params[index].bytes());
    if plan.device_info.shares_host_memory {
        0
    } else {
        packed.max().unwrap_or(0)
    }
}
