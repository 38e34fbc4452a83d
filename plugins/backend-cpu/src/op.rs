//! The ops of this backend, by name, and their prepared kernels.

mod adamw;
mod adamw8bit;
mod arithmetic;
mod attention;
mod bias;
mod cross_entropy;
mod dropout;
mod elementwise;
mod embedding;
mod expand;
mod flat;
mod gelu;
mod layer_norm;
mod linear;
mod matmul;
mod param_value;
mod reduce;
#[cfg(test)]
mod refusals;
mod rms_norm;
mod rope;
mod row_norms;
mod rows;
mod scale_channels;
mod sgd;
mod sinusoids;
mod slice_columns;
mod swiglu;
#[cfg(test)]
mod tests;

use espalier_host_device::{Asked, Call, Made, Number};
use espalier_interface::{Decoder, OpId, Result};
use espalier_kernels::added::Added;
use espalier_kernels::matmul::Isa;

/// Further inputs of a kernel's preparation.
pub struct Setting<'a> {
    /// Decoders of the params, where their formats are callbacks.
    pub decoders: &'a [Option<Decoder>],
    /// The host's threads.
    pub threads: usize,
    /// The instruction set of products.
    pub isa: Isa,
}

/// An op: its name, and the function that prepares it.
pub struct Op {
    name: &'static str,
    prepare: fn(&Asked<'_>, &Setting<'_>) -> Result<Made>,
}

/// All ops, each table with the version of its ops.
const OPS: &[(u32, &[Op])] = &[
    (1, adamw::OPS),
    (2, adamw::NARROW),
    (3, adamw::STOCHASTIC),
    (1, adamw8bit::OPS),
    (2, adamw8bit::NARROW),
    (3, adamw8bit::STOCHASTIC),
    (1, arithmetic::OPS),
    (1, attention::OPS),
    (1, bias::OPS),
    (1, cross_entropy::OPS),
    (2, cross_entropy::FUSED),
    (1, dropout::OPS),
    (1, elementwise::OPS),
    (1, embedding::OPS),
    (1, expand::OPS),
    (1, flat::OPS),
    (1, gelu::OPS),
    (1, layer_norm::OPS),
    (1, linear::OPS),
    (2, linear::FUSED),
    (3, linear::FUSED_3),
    (4, linear::FUSED_4),
    (1, matmul::OPS),
    (1, param_value::OPS),
    (1, reduce::OPS),
    (1, rms_norm::OPS),
    (2, rms_norm::FUSED),
    (1, rope::OPS),
    (2, rope::FUSED),
    (1, row_norms::OPS),
    (1, rows::OPS),
    (1, scale_channels::OPS),
    (1, sgd::OPS),
    (2, sgd::NARROW),
    (3, sgd::STOCHASTIC),
    (1, sinusoids::OPS),
    (1, slice_columns::OPS),
    (1, swiglu::OPS),
];

/// Input `index` of a launch, which a kernel adds its result to; output 0 may lie in its memory.
fn added<'c, N: Number>(call: &'c Call<'_>, index: usize) -> Added<'c, N> {
    if call.in_place() {
        Added::Output
    } else {
        Added::Values(call.input(index))
    }
}

/// The ops that every device has.
pub fn ids() -> Vec<OpId> {
    let id = |(version, op): (u32, &Op)| OpId {
        name: op.name.to_owned(),
        version,
    };
    all().map(id).collect()
}

fn all() -> impl Iterator<Item = (u32, &'static Op)> {
    let tables = OPS.iter();
    tables.flat_map(|(version, ops)| ops.iter().map(|op| (*version, op)))
}

/// Prepares a requested kernel.
///
/// # Errors
/// `UNSUPPORTED` for an op, version, dtype or layout that this backend does not have, `INVALID` for
/// a request that contradicts its op.
pub fn prepare(asked: &Asked<'_>, setting: &Setting<'_>) -> Result<Made> {
    let (_, op) = all().nth(asked.find(&ids())?).expect("it was found there");
    (op.prepare)(asked, setting)
}
