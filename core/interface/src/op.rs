//! The ops: one file each, with its definition and the builder that appends it to a graph.
//!
//! Legend: `T` tokens, `S` sequences, `D` width, `F` feed-forward width, `H` heads, `J`
//! key/value heads, `K` head width, `V` vocabulary, `N x M` a weight `[out, in]`. Operands are
//! written as inputs; params -> outputs. The compute dtype is that of activations; norms,
//! softmax, loss and gradients have the reduce dtype.
//!
//! [`DEFINITIONS`] is the table of all. Graphs, kernel requests, plans and launches are checked
//! and made by it; what a backend adds to an op is the arithmetic. Primitives are ops of which
//! others are made where a backend lacks them; graphs need not name them. An op that is not in
//! the table may be a backend's own.

mod adamw;
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
mod exp;
mod expand;
mod first_not_finite;
mod graph_check;
mod init;
mod linear;
mod log;
mod matmul;
mod mul;
mod param_value;
mod pick;
mod request_check;
mod rms_norm;
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
mod sum_squares;
mod swap_halves;
mod swiglu;
mod table;
mod zero;

use crate::DType;
use crate::graph::{Dim, ValueType};

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
pub use linear::linear;
pub use matmul::{Read, matmul};
pub use mul::mul;
pub use param_value::param_value;
pub use rms_norm::rms_norm;
pub use rope::rope;
pub use scale_by::scale_by;
pub use scale_channels::scale_channels;
pub use swiglu::swiglu;
#[allow(deprecated)]
pub use table::operands;
pub use table::{DEFINITIONS, definition};

/// A value in the compute dtype.
fn compute(shape: impl Into<Vec<Dim>>) -> ValueType {
    ValueType {
        shape: shape.into(),
        dtype: DType::COMPUTE,
    }
}
