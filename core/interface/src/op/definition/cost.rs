//! The cost of an op: floating-point operations of its products, bytes that it reads and writes.

use super::{OpCall, Writing};
use crate::graph::Dim;

/// Floating-point operations of matrix products: a multiply and an add count as two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpFlops {
    /// Operations per token.
    pub per_token: u64,
    /// Operations per pair of a token and one that it attends to.
    pub per_pair: u64,
    /// Operations of a launch, for any number of tokens.
    pub per_launch: u64,
}

impl OpFlops {
    /// No matrix product.
    pub const NONE: OpFlops = OpFlops {
        per_token: 0,
        per_pair: 0,
        per_launch: 0,
    };
}

/// Bytes that a launch reads and writes besides multiplying.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpTraffic {
    /// Bytes of values per token.
    pub per_token: u64,
    /// Bytes of dense weights, gradients and caches, for any number of tokens.
    pub per_launch: u64,
    /// Bytes of packed weights and of their decoded values.
    pub decoded_per_launch: u64,
}

/// The bytes of all inputs and outputs, each once; an output that is read and changed counts
/// twice. Params are not counted: beside the values they are small, but for those of products.
pub fn operand_traffic(call: &OpCall<'_>) -> OpTraffic {
    let mut traffic = OpTraffic::default();
    let inputs = call.inputs.iter().map(|operand| (operand, 1));
    let outputs = call.outputs.iter().enumerate().map(|(index, operand)| {
        let output = call.definition.outputs.get(index);
        match output.map(|output| output.writing) {
            Some(Writing::Whole) => (operand, 1),
            // Nothing is known of the outputs of an op without a definition.
            Some(Writing::Accumulated | Writing::Updated) | None => (operand, 2),
        }
    });
    for (operand, times) in inputs.chain(outputs) {
        let bytes = operand.fixed_elements() * operand.dtype.bytes();
        if operand.shape.contains(&Dim::Tokens) {
            traffic.per_token += bytes;
        } else {
            traffic.per_launch += times * bytes;
        }
    }
    traffic
}
