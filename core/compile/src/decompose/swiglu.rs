//! `swiglu` and its gradients from `sigmoid`, products and sums.
//!
//! With `s = sigmoid(g)`: `y = g s u`; `dg = dy u (s + g (s - s^2))`, `du = dy g s`.

use espalier_interface::Result;
use espalier_interface::graph::Attributes;

use super::parts::{Parts, Whole};

pub(super) fn forward(parts: &mut Parts<'_>, whole: &Whole<'_>) -> Result<()> {
    let gate = parts.wide(whole.inputs[0]);
    let up = parts.wide(whole.inputs[1]);
    let sigmoid = parts.map("sigmoid", &[gate], Attributes::new());
    let silu = parts.mul(gate, sigmoid);
    parts.finish("mul", &[silu, up], whole.outputs[0], Attributes::new());
    Ok(())
}

pub(super) fn backward(parts: &mut Parts<'_>, whole: &Whole<'_>) -> Result<()> {
    let [dy, gate, up] = [0, 1, 2].map(|index| parts.wide(whole.inputs[index]));
    let sigmoid = parts.map("sigmoid", &[gate], Attributes::new());
    let square = parts.mul(sigmoid, sigmoid);
    let slope = parts.add(sigmoid, square, -1.0);
    let bent = parts.mul(gate, slope);
    let slope = parts.add(sigmoid, bent, 1.0);
    let scaled = parts.mul(dy, up);
    parts.finish("mul", &[scaled, slope], whole.outputs[0], Attributes::new());
    let scaled = parts.mul(dy, gate);
    parts.finish(
        "mul",
        &[scaled, sigmoid],
        whole.outputs[1],
        Attributes::new(),
    );
    Ok(())
}
