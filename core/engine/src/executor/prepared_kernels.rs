//! A run's program -> the kernels of every step, prepared by its device.

mod maker;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use espalier_compile::arena::aligned;
use espalier_compile::program::{OperandPlace, Scalar};
use espalier_interface::op::InEvaluation;
use espalier_interface::optimizer::ParamSize;
use espalier_interface::{DType, Device, Kernel, Operand, Result};
use espalier_plan::plan::RunPlan;

use super::work_counter::CallCost;
use crate::decoder::Callback;
use crate::kernel_cache::KernelCache;
use maker::Maker;

/// A kernel and the locations of its operands.
pub(super) struct PreparedStep {
    pub(super) kernel: Kernel,
    pub(super) operands: Vec<OperandPlace>,
    pub(super) scalars: Vec<Scalar>,
    pub(super) in_evaluation: InEvaluation,
    pub(super) cost: CallCost,
}

/// The launches of a unit.
pub(super) struct PreparedUnit {
    pub(super) forward: Vec<PreparedStep>,
    pub(super) backward: Vec<PreparedStep>,
}

/// The kernels for the trainable run of a unit.
pub(super) struct TrainedKernels {
    /// On the gradients of a micro-batch, before they are reduced.
    pub(super) zero: Kernel,
    /// On the gradients that this rank keeps.
    pub(super) sum_squares: Kernel,
}

/// All kernels of a run.
pub struct PreparedKernels {
    pub(super) units: Vec<PreparedUnit>,
    /// Units of the program that generates, where it is another one.
    pub(super) generator: Vec<PreparedUnit>,
    /// Sets the gradients that are not cut to zero; none where there are none.
    pub(super) zero_whole: Option<Kernel>,
    /// Sets the gradient of the hidden states that the head reads to zero, and its bytes; none
    /// where there is none, or the head works on all tokens.
    pub(super) zero_hidden_gradient: Option<(Kernel, u64)>,
    /// One for each unit that has something to train.
    pub(super) trained: Vec<Option<TrainedKernels>>,
    /// The optimizer's op by the elements of a launch.
    pub(super) updates: HashMap<(ParamSize, u64), Kernel>,
    /// Casts of gradients by dtypes and elements.
    pub(super) casts: HashMap<([DType; 2], u64), Kernel>,
    /// All of the above, each once: released with this.
    _all: KernelCache,
    /// The callbacks for weights that only their quantizer decodes.
    pub(super) callbacks: Vec<&'static Callback>,
    /// Bytes of workspace: what the hungriest kernel needs, and behind it what is of moving lanes.
    pub workspace_bytes: u64,
    /// The last bytes of it: what a cast on a moving lane needs, beside the compute stream.
    pub(super) moving_workspace_bytes: u64,
}

impl PreparedKernels {
    /// Asks `device` for every kernel of the plan's programs. Equal requests share a kernel.
    ///
    /// # Errors
    /// The backend's error for an op that it refuses. `PROTOCOL` for a workspace that is too large.
    pub fn new(device: &Arc<dyn Device>, plan: &RunPlan) -> Result<Self> {
        let (program, shard_layout, dtypes) = (&plan.program, &plan.shard_layout, plan.dtypes);
        let mut maker = Maker::new(device, plan);
        let units = maker.units(program)?;
        let generator = plan.generator.as_ref();
        let generator = generator.map_or(Ok(Vec::new()), |program| maker.units(program))?;
        let [gradients, _] = shard_layout.whole_elements();
        let zero_whole = match gradients {
            0 => None,
            all => {
                let gradients = Operand::flat(all, dtypes.gradients);
                Some(maker.flat("zero", vec![], vec![gradients])?)
            }
        };
        let zero_hidden_gradient = maker.zero_hidden_gradient(program, dtypes)?;
        let mut trained = Vec::with_capacity(program.units.len());
        for unit in 0..program.units.len() {
            trained.push(match shard_layout.flat_params[unit].elements {
                0 => None,
                _ => Some(maker.trained(shard_layout, unit, dtypes)?),
            });
        }
        let mut updates = HashMap::new();
        for (size, count) in update_lengths(plan) {
            let optimizer = shard_layout.optimizer.of_size(size);
            let kernel = maker.update(optimizer, count, dtypes)?;
            updates.insert((size, count), kernel);
        }
        let mut casts = HashMap::new();
        let of_computing = std::mem::take(&mut maker.workspace_bytes);
        for (dtypes, count) in shard_layout.casts(dtypes) {
            let [from, to] = dtypes.map(|dtype| vec![Operand::flat(count, dtype)]);
            casts.insert((dtypes, count), maker.flat("cast", from, to)?);
        }
        // A schedule may reduce on the compute lane, too. The others reduce on one lane.
        let of_casts = maker.workspace_bytes;
        let mut workspace_bytes = of_computing.max(of_casts);
        let moves = plan.step_plan.lanes() > 1;
        let moving_workspace_bytes = if moves { of_casts } else { 0 };
        if moving_workspace_bytes > 0 {
            workspace_bytes = aligned(workspace_bytes) + moving_workspace_bytes;
        }
        Ok(PreparedKernels {
            units,
            generator,
            zero_whole,
            zero_hidden_gradient,
            trained,
            updates,
            casts,
            _all: maker.kernels,
            callbacks: maker.callbacks,
            workspace_bytes,
            moving_workspace_bytes,
        })
    }

    /// The update of `count` elements of params of a size.
    pub(super) fn update(&self, size: ParamSize, count: u64) -> Option<Kernel> {
        self.updates.get(&(size, count)).copied()
    }

    /// The cast of `count` elements.
    pub(super) fn cast(&self, dtypes: [DType; 2], count: u64) -> Option<Kernel> {
        self.casts.get(&(dtypes, count)).copied()
    }
}

/// The sizes of params and the elements of all launches of the update, of every rank: ranks share
/// equal prepared kernels.
fn update_lengths(plan: &RunPlan) -> BTreeSet<(ParamSize, u64)> {
    let parts = plan.shard_layout.parts;
    let units = 0..plan.program.units.len();
    let launches = units.flat_map(|unit| {
        let parts = if plan.shard_layout.is_cut(unit) {
            parts
        } else {
            1
        };
        (0..parts).flat_map(move |part| plan.group_parts(unit, part))
    });
    launches
        .map(|part| (part.size, part.elements.end - part.elements.start))
        .collect()
}
