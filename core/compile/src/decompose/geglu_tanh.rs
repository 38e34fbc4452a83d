//! `geglu_tanh` and its gradients from `sigmoid`, products and sums.
//!
//! With `s = sigmoid(z)` and `z = 2 k (g + c g^3)`: `y = g s u`; `dg = dy u (s + g (s - s^2) z')`
//! with `z' = 2 k + 6 k c g^2`, `du = dy g s`.

use espalier_interface::Result;
use espalier_interface::graph::{Attributes, ValueId};
use espalier_interface::op::{GELU_CUBE, GELU_SLOPE};

use super::parts::{Parts, Whole};

pub(super) fn forward(parts: &mut Parts<'_>, whole: &Whole<'_>) -> Result<()> {
    let [gate, up] = [0, 1].map(|index| parts.wide(whole.inputs[index]));
    let (sigmoid, _) = sigmoid(parts, gate);
    let gelu = parts.mul(gate, sigmoid);
    parts.finish("mul", &[gelu, up], whole.outputs[0], Attributes::new());
    Ok(())
}

pub(super) fn backward(parts: &mut Parts<'_>, whole: &Whole<'_>) -> Result<()> {
    let [dy, gate, up] = [0, 1, 2].map(|index| parts.wide(whole.inputs[index]));
    let (sigmoid, slope) = sigmoid_and_slope(parts, gate);
    let scaled = parts.mul(dy, up);
    parts.finish("mul", &[scaled, slope], whole.outputs[0], Attributes::new());
    let scaled = parts.mul(dy, gate);
    let to = whole.outputs[1];
    parts.finish("mul", &[scaled, sigmoid], to, Attributes::new());
    Ok(())
}

/// `s`, and `s + g (s - s^2) z'`.
pub(super) fn sigmoid_and_slope(parts: &mut Parts<'_>, gate: ValueId) -> (ValueId, ValueId) {
    let (sigmoid, bend) = sigmoid(parts, gate);
    let square = parts.mul(sigmoid, sigmoid);
    let slope = parts.add(sigmoid, square, -1.0);
    // g z' = 2 k g + 3 (2 k c g^3)
    let line = Attributes::new().with("alpha", GELU_SLOPE);
    let line = parts.map("scale", &[gate], line);
    let steep = parts.add(line, bend, 3.0);
    let bent = parts.mul(steep, slope);
    let slope = parts.add(sigmoid, bent, 1.0);
    (sigmoid, slope)
}

/// `s`, and `2 k c g^3`.
pub(super) fn sigmoid(parts: &mut Parts<'_>, gate: ValueId) -> (ValueId, ValueId) {
    let square = parts.mul(gate, gate);
    let cube = parts.mul(square, gate);
    let bend = Attributes::new().with("alpha", GELU_SLOPE * GELU_CUBE);
    let bend = parts.map("scale", &[cube], bend);
    let line = parts.add(bend, gate, GELU_SLOPE);
    (parts.map("sigmoid", &[line], Attributes::new()), bend)
}
