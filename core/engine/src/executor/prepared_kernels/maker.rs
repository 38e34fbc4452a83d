//! Requests -> kernels; equal requests share one.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use espalier_compile::decompose::BackendOps;
use espalier_compile::params::{Dtypes, Param};
use espalier_compile::program::{KernelCall, OperandPlace, Program};
use espalier_interface::format::Decoding;
use espalier_interface::optimizer::OptimizerSpec;
use espalier_interface::{
    DType, Decoder, Device, Kernel, KernelRequest, Operand, Quantizer, Result, WeightLayout,
};
use espalier_plan::plan::RunPlan;
use espalier_plan::shard_layout::ShardLayout;
use espalier_registry::{Chosen, answer};

use super::super::work_counter::CallCost;
use super::{PreparedStep, PreparedUnit, TrainedKernels};
use crate::decoder::Callback;
use crate::kernel_cache::KernelCache;

/// Prepares the kernels of a plan.
pub(super) struct Maker<'a> {
    params: &'a [Param],
    quantizers: &'a HashMap<usize, Chosen<dyn Quantizer>>,
    ops: &'a BackendOps,
    pub(super) callbacks: Vec<&'static Callback>,
    pub(super) kernels: KernelCache,
    pub(super) workspace_bytes: u64,
}

impl<'a> Maker<'a> {
    /// One that has prepared nothing yet.
    pub(super) fn new(device: &Arc<dyn Device>, plan: &'a RunPlan) -> Self {
        Maker {
            params: &plan.params,
            quantizers: &plan.quantizers,
            ops: &plan.ops,
            callbacks: Vec::new(),
            kernels: KernelCache::new(device),
            workspace_bytes: 0,
        }
    }

    /// The kernels of a program's units.
    pub(super) fn units(&mut self, program: &Program) -> Result<Vec<PreparedUnit>> {
        let units = program.units.iter().map(|unit| {
            Ok(PreparedUnit {
                forward: self.steps(&unit.forward)?,
                backward: self.steps(&unit.backward)?,
            })
        });
        units.collect()
    }

    fn steps(&mut self, steps: &[KernelCall]) -> Result<Vec<PreparedStep>> {
        steps
            .iter()
            .map(|step| {
                let params = step.operands.iter().filter_map(|operand| match operand {
                    OperandPlace::Param(param) => Some(*param),
                    _ => None,
                });
                let params: Vec<usize> = params.collect();
                let kernel = self.kernel(&step.request, &params)?;
                Ok(PreparedStep {
                    kernel,
                    operands: step.operands.clone(),
                    scalars: step.scalars.clone(),
                    in_evaluation: step.in_evaluation,
                    cost: CallCost {
                        flops: step.request.flops(),
                        traffic: step.request.traffic(),
                    },
                })
            })
            .collect()
    }

    /// The kernels for the trainable run of a unit.
    pub(super) fn trained(
        &mut self,
        shard_layout: &ShardLayout,
        unit: usize,
        dtypes: Dtypes,
    ) -> Result<TrainedKernels> {
        let own = shard_layout.own_elements(unit);
        let all = if shard_layout.is_cut(unit) {
            own * shard_layout.parts
        } else {
            own
        };
        let gradients = Operand::flat(own, dtypes.gradients);
        let sum = vec![Operand::flat(1, DType::F64)];
        Ok(TrainedKernels {
            zero: self.flat("zero", vec![], vec![Operand::flat(all, dtypes.gradients)])?,
            sum_squares: self.flat("sum_squares", vec![gradients], sum)?,
        })
    }

    /// The kernel that sets the gradient of the hidden states that a head reads to zero, and its
    /// bytes, where the head works on tokens with a label alone.
    pub(super) fn zero_hidden_gradient(
        &mut self,
        program: &Program,
        dtypes: Dtypes,
    ) -> Result<Option<(Kernel, u64)>> {
        let [.., before, head] = &program.units[..] else {
            return Ok(None);
        };
        let gradient = head.labelled.and_then(|rows| rows.gradient);
        let Some([place, _]) = gradient else {
            return Ok(None);
        };
        let bytes = place.extent.bytes(before.max_tokens, 0);
        let all = Operand::flat(bytes / dtypes.compute.bytes(), dtypes.compute);
        let kernel = self.flat("zero", vec![], vec![all])?;
        Ok(Some((kernel, bytes)))
    }

    /// The kernel of the op of an optimizer, which is that of params of one size, on `count`
    /// elements.
    pub(super) fn update(
        &mut self,
        optimizer: &OptimizerSpec,
        count: u64,
        dtypes: Dtypes,
    ) -> Result<Kernel> {
        let gradients = Operand::flat(count, dtypes.gradients);
        let state = optimizer.state.iter();
        let state = state.map(|tensor| Operand::flat(tensor.elements(count), tensor.dtype));
        let updated = std::iter::once(Operand::flat(count, dtypes.params)).chain(state);
        let request = KernelRequest::new(&optimizer.op)
            .version(optimizer.version)
            .inputs(vec![gradients])
            .outputs(updated.collect());
        self.kernel(&request, &[])
    }

    /// The kernel of an op on flat runs.
    pub(super) fn flat(
        &mut self,
        op: &str,
        inputs: Vec<Operand>,
        outputs: Vec<Operand>,
    ) -> Result<Kernel> {
        let request = KernelRequest::new(op).inputs(inputs).outputs(outputs);
        self.kernel(&request, &[])
    }

    fn kernel(&mut self, request: &KernelRequest, params: &[usize]) -> Result<Kernel> {
        let mut decoders: Vec<Option<Decoder>> = vec![None; request.params.len()];
        let mut request = Cow::Borrowed(request);
        for (index, param) in params.iter().enumerate().take(decoders.len()) {
            let WeightLayout::Packed(format) = &request.params[index].layout else {
                continue;
            };
            let quantizer = self.quantizers.get(param);
            if let (Decoding::Callback, Some(quantizer)) = (&format.decoding, quantizer) {
                let name = &self.params[*param].name;
                let callback = Callback::new(quantizer, name, format.shape);
                self.callbacks.push(callback);
                decoders[index] = Some(callback.decoder());
                let request = request.to_mut();
                request.device_code.resize(decoders.len(), None);
                request.device_code[index] = answer::device_code(quantizer)?;
            }
        }
        let request = request.as_ref();
        let prepared = self.kernels.prepare(self.ops, request, &decoders)?;
        self.workspace_bytes = self.workspace_bytes.max(prepared.workspace_bytes);
        Ok(prepared.kernel)
    }
}
