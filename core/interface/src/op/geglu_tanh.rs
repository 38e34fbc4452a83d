//! `geglu_tanh`: gate, up `[T, F]` -> `gelu(gate) * up`, with GELU's approximation by the
//! hyperbolic tangent. `geglu_tanh_backward`: dy, gate, up -> dgate, dup.
//!
//! `gelu(g) = g (1 + tanh(k (g + c g^3))) / 2` with `k = sqrt(2 / pi)` and `c = 0.044715`. Half of
//! one and a hyperbolic tangent is a sigmoid: `gelu(g) = g s` with `s = 1 / (1 + e^(-2 k (g + c
//! g^3)))`, which loses no digits where `g` is far below 0.
//!
//! Source of the approximation: Hendrycks and Gimpel, Gaussian Error Linear Units, arXiv
//! 1606.08415, section 2; `gelu_pytorch_tanh` of transformers.

use super::definition::{OpDefinition, written};
use super::swiglu::{infer, infer_backward};
use crate::graph::{Attributes, Graph, ValueId};

pub(super) static GEGLU_TANH: OpDefinition = OpDefinition {
    inputs: &["gate", "up"],
    outputs: &[written("y")],
    recomputed_in_full_training: true,
    ..OpDefinition::new("geglu_tanh", infer)
};

pub(super) static GEGLU_TANH_BACKWARD: OpDefinition = OpDefinition {
    inputs: &["dy", "gate", "up"],
    outputs: &[written("dgate"), written("dup")],
    ..OpDefinition::new("geglu_tanh_backward", infer_backward)
};

/// `c`, the factor of the cube.
pub const GELU_CUBE: f64 = 0.044_715;

/// `2 k = 2 sqrt(2 / pi)`, the factor within the sigmoid.
pub const GELU_SLOPE: f64 =
    2.0 * std::f64::consts::FRAC_2_SQRT_PI * std::f64::consts::FRAC_1_SQRT_2;

/// `gelu(gate) * up`, with the approximation by the hyperbolic tangent.
pub fn geglu_tanh(graph: &mut Graph, gate: ValueId, up: ValueId) -> ValueId {
    let ty = graph.type_of(gate).clone();
    let attributes = Attributes::new();
    graph.node("geglu_tanh", &[gate, up], &[], vec![ty], attributes)
}
