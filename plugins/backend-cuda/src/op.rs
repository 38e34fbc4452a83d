//! The ops of this backend, by name, and their prepared kernels.

mod arithmetic;
mod attention;
mod columns;
mod embedding;
mod few_rows;
mod flat;
mod layer_norm;
mod linear;
mod matmul;
mod optimizers;
mod param_value;
mod product;
mod rms_norm;
mod rope;
mod row_norms;
mod rows;
pub mod variants;
mod weight;

use espalier_host_device::{Asked, Made, Place};
use espalier_interface::graph::Dim;
use espalier_interface::{DType, OpId, Operand, Result};

use crate::kit::Kit;

/// An op: its name and version, and the function that prepares it.
pub struct Op {
    name: &'static str,
    version: u32,
    prepare: fn(&Asked<'_>, &Kit) -> Result<Made>,
}

const OPS: &[&[Op]] = &[
    arithmetic::OPS,
    attention::OPS,
    columns::OPS,
    embedding::OPS,
    flat::OPS,
    layer_norm::OPS,
    linear::OPS,
    matmul::OPS,
    optimizers::OPS,
    param_value::OPS,
    rms_norm::OPS,
    rope::OPS,
    row_norms::OPS,
    rows::OPS,
];

/// Version 1 of an op.
const fn op(name: &'static str, prepare: fn(&Asked<'_>, &Kit) -> Result<Made>) -> Op {
    version(1, name, prepare)
}

/// A version of an op.
const fn version(
    version: u32,
    name: &'static str,
    prepare: fn(&Asked<'_>, &Kit) -> Result<Made>,
) -> Op {
    Op {
        name,
        version,
        prepare,
    }
}

/// The ops that every card has.
pub fn ids() -> Vec<OpId> {
    let id = |op: &Op| OpId {
        name: op.name.to_owned(),
        version: op.version,
    };
    all().map(id).collect()
}

fn all() -> impl Iterator<Item = &'static Op> {
    OPS.iter().copied().flatten()
}

/// Prepares a requested kernel.
///
/// # Errors
/// `UNSUPPORTED` for an op, version, dtype or layout that this backend does not have, `INVALID` for
/// a request that contradicts its op, `DEVICE` where a kernel cannot be compiled.
pub fn prepare(asked: &Asked<'_>, kit: &Kit) -> Result<Made> {
    let op = all().nth(asked.find(&ids())?).expect("it was found there");
    (op.prepare)(asked, kit)
}

/// The kernels' name of a dtype that values are computed in.
fn computed(asked: &Asked<'_>, dtype: DType) -> Result<&'static str> {
    match dtype {
        DType::F32 => Ok("f32"),
        DType::BF16 => Ok("bf16"),
        other => Err(asked.bad_dtype(other, "f32 or bf16")),
    }
}

/// The kernels' name of a dtype that weights are stored in.
fn stored(asked: &Asked<'_>, dtype: DType) -> Result<&'static str> {
    match dtype {
        DType::F16 => Ok("f16"),
        DType::F32 | DType::BF16 => computed(asked, dtype),
        other => Err(asked.bad_dtype(other, "f32, bf16 or f16")),
    }
}

/// Refuses a dtype but f32, that of sums.
fn reduced(asked: &Asked<'_>, dtype: DType) -> Result<()> {
    match dtype {
        DType::F32 => Ok(()),
        other => Err(asked.bad_dtype(other, "f32")),
    }
}

/// The kernels' name of the dtype of a gradient that is added to.
fn gradient(asked: &Asked<'_>, output: usize) -> Result<&'static str> {
    computed(asked, asked.output(output).dtype)
}

/// Elements of a place.
fn elements(place: Place) -> usize {
    place.bytes / place.dtype.bytes().max(1) as usize
}

/// Elements of an operand at the largest launch.
fn most_elements(asked: &Asked<'_>, operand: &Operand) -> usize {
    let extents = operand.shape.iter().map(|dim| match dim {
        Dim::Tokens => asked.request.max_tokens as usize,
        Dim::Boundaries => asked.request.max_sequences as usize + 1,
        Dim::Fixed(extent) => *extent as usize,
    });
    extents.fold(1, usize::saturating_mul)
}
