//! `gelu` and its gradient from `erf` and `exp`, or `sigmoid`, with products and sums.
//!
//! Exact: `y = (x + x e) / 2` with `e = erf(x / sqrt(2))`; `dx = dy (1 / 2 + e / 2 + x p)` with
//! `p = e^(-x^2 / 2) / sqrt(2 pi)`. By the hyperbolic tangent: as `geglu_tanh`, without the other
//! factor.

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};

use espalier_interface::Result;
use espalier_interface::graph::{Attributes, ValueId};
use espalier_interface::op::GeluForm;

use super::geglu_tanh;
use super::parts::{Parts, Whole};

pub(super) fn forward(parts: &mut Parts<'_>, whole: &Whole<'_>) -> Result<()> {
    let x = parts.wide(whole.inputs[0]);
    let to = whole.outputs[0];
    if GeluForm::of(whole.attributes)? == GeluForm::Tanh {
        let (sigmoid, _) = geglu_tanh::sigmoid(parts, x);
        parts.finish("mul", &[x, sigmoid], to, Attributes::new());
        return Ok(());
    }
    let half = scaled(parts, x, 0.5);
    let erf = erf(parts, x);
    let bent = parts.mul(half, erf);
    let sum = Attributes::new().with("alpha", 1.0);
    parts.finish("add", &[half, bent], to, sum);
    Ok(())
}

pub(super) fn backward(parts: &mut Parts<'_>, whole: &Whole<'_>) -> Result<()> {
    let [dy, x] = [0, 1].map(|index| parts.wide(whole.inputs[index]));
    let to = whole.outputs[0];
    if GeluForm::of(whole.attributes)? == GeluForm::Tanh {
        let (_, slope) = geglu_tanh::sigmoid_and_slope(parts, x);
        parts.finish("mul", &[dy, slope], to, Attributes::new());
        return Ok(());
    }
    let square = parts.mul(x, x);
    let exponent = scaled(parts, square, -0.5);
    let density = parts.map("exp", &[exponent], Attributes::new());
    let rise = parts.mul(x, density);
    let erf = erf(parts, x);
    // e / 2 + x p, of which dy is multiplied, and added to dy / 2.
    let erf = scaled(parts, erf, 0.5);
    let bent = parts.add(erf, rise, 0.5 * FRAC_2_SQRT_PI * FRAC_1_SQRT_2);
    let bent = parts.mul(dy, bent);
    let sum = Attributes::new().with("alpha", 0.5);
    parts.finish("add", &[bent, dy], to, sum);
    Ok(())
}

/// `erf(x / sqrt(2))`.
fn erf(parts: &mut Parts<'_>, x: ValueId) -> ValueId {
    let argument = scaled(parts, x, FRAC_1_SQRT_2);
    parts.map("erf", &[argument], Attributes::new())
}

/// `alpha x`.
fn scaled(parts: &mut Parts<'_>, x: ValueId, alpha: f64) -> ValueId {
    parts.map("scale", &[x], Attributes::new().with("alpha", alpha))
}
