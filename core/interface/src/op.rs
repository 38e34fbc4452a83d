//! The ops: one file each, with its definition and the builder that appends it to a graph.
//!
//! Legend: `T` tokens, `S` sequences, `D` width, `F` feed-forward width, `H` heads, `J`
//! key/value heads, `K` head width, `V` vocabulary, `N x M` a weight `[out, in]`. Operands are
//! written as inputs; params -> outputs. The compute dtype is that of activations; norms,
//! softmax, loss and gradients have the reduce dtype.
//!
//! [`DEFINITIONS`] is the table of all. Graphs, kernel requests, plans and launches are checked
//! and made by it; what a backend adds to an op is the arithmetic. Primitives are ops of which
//! others are made where a backend lacks them; fused ops stand for several, where a backend lists
//! them. An op that is not in
//! the table may be a backend's own.

mod adamw;
mod adamw8bit;
mod adapted_row_norms;
mod add;
mod attention;
mod base;
mod base_weight;
mod broadcast_param;
mod cast;
mod cross_entropy;
mod definition;
mod div;
mod dropout;
mod embedding;
mod erf;
mod exp;
mod expand;
mod first_not_finite;
mod geglu_tanh;
mod gelu;
mod graph_check;
mod init;
mod layer_norm;
mod linear;
mod log;
mod matmul;
mod mul;
mod param_value;
mod pick;
mod request_check;
mod rms_norm;
mod rms_norm_offset;
mod rope;
mod row_max;
mod rsqrt;
mod scale;
mod scale_by;
mod scale_channels;
mod scale_trained;
mod sgd;
mod sigmoid;
mod sinusoids;
mod slice_columns;
mod sum_squares;
mod swap_halves;
mod swiglu;
mod tanh;
#[cfg(test)]
mod tests;
mod zero;

use std::ops::RangeInclusive;

use crate::DType;
use crate::graph::{Dim, ValueType};

pub use adamw::ADAMW_SCALARS;
pub use adamw8bit::ADAMW8BIT_BLOCK;
pub use adapted_row_norms::adapted_row_norms;
pub use add::add;
pub use attention::{AttentionShape, attention};
pub use base::base;
pub use base_weight::base_weight;
pub use cross_entropy::cross_entropy;
pub use definition::{
    AttributeDefinition, AttributeKind, InEvaluation, OpCall, OpDefinition, OpFlops, OpTraffic,
    OperandType, OutputDefinition, ParamDefinition, ParamType, Presence, Storage, Writing,
};
pub use div::div;
pub use dropout::dropout;
pub use embedding::{EmbeddingLayout, embedding};
pub use exp::exp;
pub use geglu_tanh::{GELU_CUBE, GELU_SLOPE, geglu_tanh};
pub use gelu::{GeluForm, gelu};
pub use layer_norm::layer_norm;
pub use linear::{is_power_of_two, linear};
pub use log::log;
pub use matmul::{Read, matmul};
pub use mul::mul;
pub use param_value::param_value;
pub use rms_norm::rms_norm;
pub use rms_norm_offset::rms_norm_offset;
pub use rope::rope;
pub use rsqrt::rsqrt;
pub use scale::{scale, scale_rounded, with_rounded_factor};
pub use scale_by::scale_by;
pub use scale_channels::scale_channels;
pub use sigmoid::sigmoid;
pub use slice_columns::slice_columns;
pub use swiglu::swiglu;
pub use tanh::tanh;

/// The definitions of all ops, each name and version once.
pub static DEFINITIONS: &[&OpDefinition] = &[
    &embedding::EMBEDDING,
    &embedding::EMBEDDING_BACKWARD,
    &linear::LINEAR,
    &linear::LINEAR_INPUT_BACKWARD,
    &linear::LINEAR_WEIGHT_BACKWARD,
    &linear::LINEAR_2,
    &linear::LINEAR_3,
    &linear::LINEAR_4,
    &linear::LINEAR_INPUT_BACKWARD_2,
    &linear::LINEAR_INPUT_BACKWARD_3,
    &linear::LINEAR_INPUT_BACKWARD_4,
    &linear::LINEAR_WEIGHT_BACKWARD_2,
    &linear::BIAS_BACKWARD,
    &rms_norm::RMS_NORM,
    &rms_norm::RMS_NORM_BACKWARD,
    &rms_norm::RMS_NORM_BACKWARD_2,
    &rms_norm::RMS_NORM_WEIGHT_BACKWARD,
    &rms_norm_offset::RMS_NORM_OFFSET,
    &rms_norm_offset::RMS_NORM_OFFSET_BACKWARD,
    &rms_norm_offset::RMS_NORM_OFFSET_WEIGHT_BACKWARD,
    &layer_norm::LAYER_NORM,
    &layer_norm::LAYER_NORM_BACKWARD,
    &layer_norm::LAYER_NORM_WEIGHT_BACKWARD,
    &rope::ROPE,
    &rope::ROPE_BACKWARD,
    &rope::ROPE_2,
    &rope::ROPE_BACKWARD_2,
    &attention::ATTENTION,
    &attention::ATTENTION_BACKWARD,
    &attention::ATTENTION_CACHED,
    &swiglu::SWIGLU,
    &swiglu::SWIGLU_BACKWARD,
    &geglu_tanh::GEGLU_TANH,
    &geglu_tanh::GEGLU_TANH_BACKWARD,
    &gelu::GELU,
    &gelu::GELU_BACKWARD,
    &slice_columns::SLICE_COLUMNS,
    &slice_columns::SLICE_COLUMNS_BACKWARD,
    &add::ADD,
    &mul::MUL,
    &div::DIV,
    &scale_by::SCALE_BY,
    &scale_by::SCALE_BY_BACKWARD,
    &param_value::PARAM_VALUE,
    &param_value::PARAM_VALUE_BACKWARD,
    &adapted_row_norms::ADAPTED_ROW_NORMS,
    &matmul::MATMUL,
    &scale::SCALE,
    &scale_channels::SCALE_CHANNELS,
    &scale_channels::SCALE_CHANNELS_WEIGHT_BACKWARD,
    &dropout::DROPOUT,
    &cross_entropy::CROSS_ENTROPY,
    &cross_entropy::CROSS_ENTROPY_BACKWARD,
    &cross_entropy::CROSS_ENTROPY_BACKWARD_2,
    &base::BASE,
    &zero::ZERO,
    &cast::CAST,
    &init::INIT,
    &sum_squares::SUM_SQUARES,
    &first_not_finite::FIRST_NOT_FINITE,
    &adamw::ADAMW,
    &adamw::ADAMW_2,
    &adamw::ADAMW_3,
    &adamw8bit::ADAMW8BIT,
    &adamw8bit::ADAMW8BIT_2,
    &adamw8bit::ADAMW8BIT_3,
    &sgd::SGD,
    &sgd::SGD_2,
    &sgd::SGD_3,
    &erf::ERF,
    &exp::EXP,
    &log::LOG,
    &sigmoid::SIGMOID,
    &rsqrt::RSQRT,
    &expand::EXPAND,
    &expand::CONTRACT,
    &broadcast_param::BROADCAST_PARAM,
    &row_max::ROW_MAX,
    &row_max::IS_ARGMAX,
    &pick::PICK,
    &pick::ONE_HOT,
    &scale_trained::SCALE_TRAINED,
    &sinusoids::SINUSOIDS,
    &swap_halves::SWAP_HALVES,
    &tanh::TANH,
];

/// The definition of version `version` of the op `name`; none for an op that the interface does not
/// know, which may be a backend's own.
pub fn definition(name: &str, version: u32) -> Option<&'static OpDefinition> {
    let mut all = DEFINITIONS.iter().copied();
    all.find(|one| one.name == name && one.version == version)
}

/// How many inputs, params and outputs version 1 of an op has; none for an op that it does not
/// define.
#[deprecated(note = "ask `definition`, which has the operands by name")]
pub fn operands(op: &str) -> Option<[RangeInclusive<usize>; 3]> {
    Some(definition(op, 1)?.operands())
}

/// A value in the compute dtype.
fn compute(shape: impl Into<Vec<Dim>>) -> ValueType {
    ValueType {
        shape: shape.into(),
        dtype: DType::COMPUTE,
    }
}
