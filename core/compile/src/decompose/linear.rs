//! The fused products of `linear` and its gradients from the plain ones, `scale` and `add`, to the
//! bit.

use espalier_interface::Result;
use espalier_interface::graph::Attributes;

use super::parts::{Parts, Whole};
use super::unfit;
use crate::grad::Target;

pub(super) fn forward(parts: &mut Parts<'_>, whole: &Whole<'_>) -> Result<()> {
    product(parts, whole, "linear")
}

pub(super) fn input_backward(parts: &mut Parts<'_>, whole: &Whole<'_>) -> Result<()> {
    product(parts, whole, "linear_input_backward")
}

pub(super) fn weight_backward(parts: &mut Parts<'_>, whole: &Whole<'_>) -> Result<()> {
    let (dy, x) = (whole.inputs[0], whole.inputs[1]);
    let dy = match alpha(whole) {
        1.0 => dy,
        alpha => {
            let scaled = parts.like(dy);
            parts.emit("scale", &[dy], Target::Value(scaled), factor(alpha));
            scaled
        }
    };
    let (op, target) = ("linear_weight_backward", whole.outputs[0]);
    parts.emit(op, &[dy, x], target, Attributes::new());
    Ok(())
}

/// `op`, then `add` or `scale`, then `add` of a further value.
fn product(parts: &mut Parts<'_>, whole: &Whole<'_>, op: &'static str) -> Result<()> {
    let target = whole.outputs[0];
    let Target::Value(output) = target else {
        return Err(unfit(whole, "its output is a gradient of a param"));
    };
    let inputs = &whole.inputs[..1];
    let sum = match whole.inputs.get(2) {
        None => target,
        Some(_) => Target::Value(parts.like(output)),
    };
    let (alpha, added) = (alpha(whole), whole.inputs.get(1));
    if alpha == 1.0 && added.is_none() {
        parts.emit_with(op, inputs, whole.params, target, Attributes::new());
        return Ok(());
    }
    let plain = parts.like(output);
    let to = Target::Value(plain);
    parts.emit_with(op, inputs, whole.params, to, Attributes::new());
    match added {
        Some(&added) => parts.emit("add", &[added, plain], sum, factor(alpha)),
        None => parts.emit("scale", &[plain], sum, factor(alpha)),
    }
    if let (Some(&residual), Target::Value(sum)) = (whole.inputs.get(2), sum) {
        parts.emit("add", &[residual, sum], target, factor(1.0));
    }
    Ok(())
}

fn alpha(whole: &Whole<'_>) -> f64 {
    whole.attributes.optional_number("alpha").unwrap_or(1.0)
}

fn factor(alpha: f64) -> Attributes {
    Attributes::new().with("alpha", alpha)
}
