//! The fused products of `linear` and its gradients from the plain ones, `scale` and `add`, to the
//! bit.

use espalier_interface::Result;
use espalier_interface::graph::{Attributes, ValueId};

use super::parts::{Parts, Whole};
use crate::grad::Target;

pub(super) fn forward(parts: &mut Parts<'_>, whole: &Whole<'_>) -> Result<()> {
    let (added, residual) = (whole.inputs.get(1), whole.inputs.get(2));
    let target = whole.outputs[0];
    let Some(&residual) = residual else {
        return product(parts, whole, "linear", added.copied(), target);
    };
    let sum = parts.like(whole.value()?);
    product(parts, whole, "linear", added.copied(), Target::Value(sum))?;
    parts.emit("add", &[residual, sum], target, factor(1.0));
    Ok(())
}

pub(super) fn input_backward(parts: &mut Parts<'_>, whole: &Whole<'_>) -> Result<()> {
    input_gradient(parts, whole, whole.inputs.get(1).copied())
}

pub(super) fn weight_backward(parts: &mut Parts<'_>, whole: &Whole<'_>) -> Result<()> {
    weight_gradient(parts, whole, whole.outputs[0]);
    Ok(())
}

/// The gradients of the input and of the weight.
pub(super) fn both_backward(parts: &mut Parts<'_>, whole: &Whole<'_>) -> Result<()> {
    weight_gradient(parts, whole, whole.outputs[1]);
    input_gradient(parts, whole, whole.inputs.get(2).copied())
}

/// The gradient of the input, added to `added`.
fn input_gradient(parts: &mut Parts<'_>, whole: &Whole<'_>, added: Option<ValueId>) -> Result<()> {
    let target = whole.outputs[0];
    product(parts, whole, "linear_input_backward", added, target)
}

/// `scale`, then the gradient of a weight, of the first two inputs.
fn weight_gradient(parts: &mut Parts<'_>, whole: &Whole<'_>, target: Target) {
    let (dy, x) = (whole.inputs[0], whole.inputs[1]);
    let dy = match alpha(whole) {
        1.0 => dy,
        alpha => {
            let scaled = parts.like(dy);
            parts.emit("scale", &[dy], Target::Value(scaled), factor(alpha));
            scaled
        }
    };
    let op = "linear_weight_backward";
    parts.emit(op, &[dy, x], target, Attributes::new());
}

/// `op` of the first input, then `add` to what is added, or `scale`.
fn product(
    parts: &mut Parts<'_>,
    whole: &Whole<'_>,
    op: &'static str,
    added: Option<ValueId>,
    target: Target,
) -> Result<()> {
    let (inputs, alpha) = (&whole.inputs[..1], alpha(whole));
    if alpha == 1.0 && added.is_none() {
        parts.emit_with(op, inputs, whole.params, target, Attributes::new());
        return Ok(());
    }
    let plain = parts.like(whole.value()?);
    let to = Target::Value(plain);
    parts.emit_with(op, inputs, whole.params, to, Attributes::new());
    match added {
        Some(added) => parts.emit("add", &[added, plain], target, factor(alpha)),
        None => parts.emit("scale", &[plain], target, factor(alpha)),
    }
    Ok(())
}

fn alpha(whole: &Whole<'_>) -> f64 {
    whole.attributes.optional_number("alpha").unwrap_or(1.0)
}

fn factor(alpha: f64) -> Attributes {
    Attributes::new().with("alpha", alpha)
}
