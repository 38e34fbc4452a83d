//! A tensor library -> the kernels of a backend.

use std::sync::Arc;

use espalier_host_device::{Asked, KernelMaker, Made, Setting};
use espalier_interface::graph::Dim;
use espalier_interface::op::{Writing, definition};
use espalier_interface::{DType, OpId, Result, WeightLayout};

use crate::launch::{Launch, Ranges};
use crate::op::{self, Dtypes, Logits, Op, Temporaries};
use crate::{Tensors, Threads};

/// The kernels of a backend that a tensor library computes.
pub struct TensorKernels<L> {
    name: String,
    library: Arc<L>,
}

impl<L: Tensors> TensorKernels<L> {
    /// The kernels of the backend `name`.
    pub fn new(name: &str, library: Arc<L>) -> Self {
        TensorKernels {
            name: name.to_owned(),
            library,
        }
    }

    /// The ops that there are, by name and version.
    pub fn ops() -> Vec<OpId> {
        let id = |op: &Op<L>| OpId {
            name: op.name.to_owned(),
            version: op.version,
        };
        op::all::<L>().iter().map(id).collect()
    }
}

impl<L: Tensors> KernelMaker for TensorKernels<L> {
    fn name(&self) -> &str {
        &self.name
    }

    fn prepare(&self, asked: &Asked<'_>, setting: &Setting<'_>) -> Result<Made> {
        let op = op::all::<L>().swap_remove(asked.find(&Self::ops())?);
        check_dtypes(asked, op.dtypes)?;
        let kernel = (op.prepare)(asked, setting)?;
        let of_logits = kernel
            .logits
            .map_or(0, |logits| self.logits_bytes(logits, setting));
        let temporaries = self
            .temporary_bytes(asked, &op, setting)
            .saturating_add(kernel.temporary_bytes)
            .saturating_add(of_logits);
        let workspace_bytes = kernel.workspace_bytes;
        let ranges = Ranges::of(asked, workspace_bytes);
        let zeroed = zeroed_without_tokens(asked);
        let has_tokens = asked
            .request
            .inputs
            .iter()
            .any(|input| input.shape.contains(&Dim::Tokens));
        let library = self.library.clone();
        let made = Made::new(move |call| {
            let launch = ranges.launch(&*library, call);
            if has_tokens && launch.tokens == 0 {
                return without_tokens(&launch, &zeroed);
            }
            (kernel.run)(&launch)
        });
        let made = made
            .with_workspace(workspace_bytes)
            .with_temporaries(temporaries);
        Ok(match kernel.in_place_of {
            Some(index) => made.in_place_of(index),
            None => made,
        })
    }
}

impl<L: Tensors> TensorKernels<L> {
    /// How many parts are computed at once.
    fn threads(&self, setting: &Setting<'_>) -> u64 {
        match self.library.split().threads {
            Threads::Library => 1,
            Threads::Host => setting.services.threads() as u64,
        }
    }

    /// Most bytes of the tensors of blocks of logits, f32.
    fn logits_bytes(&self, logits: Logits, setting: &Setting<'_>) -> u64 {
        let block = logits.of_query.max(self.library.logits_at_once() as u64);
        let bytes = block.saturating_mul(4 * logits.copies);
        bytes.saturating_mul(self.threads(setting))
    }

    /// Most bytes of the tensors of a launch, of f32 or as wide as f64.
    fn temporary_bytes(&self, asked: &Asked<'_>, op: &Op<L>, setting: &Setting<'_>) -> u64 {
        let request = asked.request;
        let extent = |dim: &Dim| match dim {
            Dim::Tokens => request.max_tokens,
            Dim::Boundaries => request.max_sequences.saturating_add(1),
            Dim::Fixed(extent) => *extent,
        };
        let product = |extents: Vec<u64>| extents.into_iter().fold(1, u64::saturating_mul);
        let operands = request.inputs.iter().chain(&request.outputs);
        let of_operands: Vec<u64> = operands
            .map(|operand| product(operand.shape.iter().map(extent).collect()))
            .collect();
        let of_params = request.params.iter().map(|param| match param.layout {
            WeightLayout::Dense(_) => product(param.shape.clone()),
            WeightLayout::Packed(_) => 0,
        });
        let of_values = of_operands.iter().copied().fold(0, u64::saturating_add);
        let all = of_params.fold(of_values, u64::saturating_add);
        match op.temporaries {
            Temporaries::Whole(copies) => all.saturating_mul(4 * copies),
            Temporaries::Values(copies) => of_values.saturating_mul(4 * copies),
            Temporaries::Parts(copies) => {
                let split = self.library.split();
                let row = request
                    .outputs
                    .iter()
                    .chain(&request.inputs)
                    .map(|operand| {
                        let fixed = operand.shape.iter().filter(|_| operand.shape.len() > 1);
                        product(
                            fixed
                                .map(|dim| if *dim == Dim::Tokens { 1 } else { extent(dim) })
                                .collect(),
                        )
                    });
                let part = row.max().unwrap_or(1).max(split.elements as u64);
                let threads = self.threads(setting);
                let largest = of_operands.into_iter().max().unwrap_or(0);
                let elements = part.saturating_mul(threads).min(largest);
                elements.saturating_mul(4 * copies)
            }
        }
    }
}

/// Refuses float dtypes that an op is not computed in.
fn check_dtypes(asked: &Asked<'_>, dtypes: Dtypes) -> Result<()> {
    let (allowed, words): (&[DType], _) = match dtypes {
        Dtypes::Computed => (&[DType::F32, DType::BF16], "f32 or bf16"),
        Dtypes::Stored => (&[DType::F32, DType::BF16, DType::F16], "f32, bf16 or f16"),
        Dtypes::Any => return Ok(()),
    };
    let request = asked.request;
    let sums = [DType::F64]
        .into_iter()
        .filter(|_| request.op == "sum_squares");
    let allowed: Vec<DType> = allowed.iter().copied().chain(sums).collect();
    for operand in request.inputs.iter().chain(&request.outputs) {
        if operand.dtype.is_float() && !allowed.contains(&operand.dtype) {
            return Err(asked.bad_dtype(operand.dtype, words));
        }
    }
    for param in &request.params {
        match param.layout {
            WeightLayout::Dense(DType::F32 | DType::BF16 | DType::F16) => {}
            WeightLayout::Dense(other) => return Err(asked.bad_dtype(other, "f32, bf16 or f16")),
            WeightLayout::Packed(_) => {}
        }
    }
    Ok(())
}

/// The outputs of fixed extents that are written whole: sums over tokens.
fn zeroed_without_tokens(asked: &Asked<'_>) -> Vec<usize> {
    let request = asked.request;
    let outputs = definition(&request.op, request.version).map_or(&[][..], |op| op.outputs);
    let written = |index: &usize| {
        let writing = outputs.get(*index).map(|output| output.writing);
        let is_fixed = !request.outputs[*index].shape.contains(&Dim::Tokens);
        is_fixed && writing == Some(Writing::Whole)
    };
    (0..request.outputs.len()).filter(written).collect()
}

/// A launch of no tokens: sums over them are zeros, and nothing is added to gradients.
fn without_tokens<L: Tensors>(launch: &Launch<'_, L>, zeroed: &[usize]) -> Result<()> {
    for &index in zeroed {
        let memory = launch.output(index);
        let zeros = launch.library.full(0.0, memory.shape(), DType::F32)?;
        launch.write(&zeros, memory)?;
    }
    Ok(())
}
