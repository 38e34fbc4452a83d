//! The fused products of `linear` and its gradients from the plain ones, `scale` and `add`, to the
//! bit.

use espalier_interface::Result;
use espalier_interface::graph::{Attributes, ValueId};

use super::parts::{Parts, Whole};
use crate::grad::Target;

pub(super) fn forward(parts: &mut Parts<'_>, whole: &Whole<'_>) -> Result<()> {
    let (added, residual) = (whole.inputs.get(1), whole.inputs.get(2));
    let product = Product::of(whole, "linear");
    sum(parts, product, added.copied(), residual.copied())
}

/// The weight's product, and the low-rank one on top of it.
pub(super) fn adapted(parts: &mut Parts<'_>, whole: &Whole<'_>) -> Result<()> {
    let base = parts.like(whole.value()?);
    let (weight, bias) = (whole.params[0], whole.params.get(2));
    let params: Vec<_> = std::iter::once(weight).chain(bias.copied()).collect();
    let to = Target::Value(base);
    parts.emit_with("linear", &whole.inputs[..1], &params, to, Attributes::new());
    let low_rank = Product {
        input: whole.inputs[1],
        params: &whole.params[1..2],
        ..Product::of(whole, "linear")
    };
    sum(parts, low_rank, Some(base), whole.inputs.get(2).copied())
}

pub(super) fn input_backward(parts: &mut Parts<'_>, whole: &Whole<'_>) -> Result<()> {
    let product = Product::of(whole, "linear_input_backward");
    product.put(parts, whole.inputs.get(1).copied())
}

pub(super) fn weight_backward(parts: &mut Parts<'_>, whole: &Whole<'_>) -> Result<()> {
    weight_gradient(parts, whole, [0, 1], whole.outputs[0]);
    Ok(())
}

/// The gradients of the input and of the weight.
pub(super) fn both_backward(parts: &mut Parts<'_>, whole: &Whole<'_>) -> Result<()> {
    weight_gradient(parts, whole, [0, 1], whole.outputs[1]);
    let product = Product::of(whole, "linear_input_backward");
    product.put(parts, whole.inputs.get(2).copied())
}

/// The gradient of the input by both weights, and that of the low-rank one.
pub(super) fn adapted_backward(parts: &mut Parts<'_>, whole: &Whole<'_>) -> Result<()> {
    weight_gradient(parts, whole, [1, 2], whole.outputs[1]);
    let narrow = parts.like(whole.value()?);
    let low_rank = Product {
        input: whole.inputs[1],
        params: &whole.params[1..],
        target: Target::Value(narrow),
        ..Product::of(whole, "linear_input_backward")
    };
    low_rank.put(parts, whole.inputs.get(3).copied())?;
    let product = Product {
        params: &whole.params[..1],
        alpha: 1.0,
        ..Product::of(whole, "linear_input_backward")
    };
    product.put(parts, Some(narrow))
}

/// `scale`, then the gradient of a weight, of two of the inputs.
fn weight_gradient(parts: &mut Parts<'_>, whole: &Whole<'_>, [dy, x]: [usize; 2], target: Target) {
    let (dy, x) = (whole.inputs[dy], whole.inputs[x]);
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

/// `product` of a version of `linear`, added to a value and then to a residual.
fn sum(
    parts: &mut Parts<'_>,
    product: Product<'_>,
    added: Option<ValueId>,
    residual: Option<ValueId>,
) -> Result<()> {
    let Some(residual) = residual else {
        return product.put(parts, added);
    };
    let sum = parts.like(product.whole.value()?);
    let within = Product {
        target: Target::Value(sum),
        ..product
    };
    within.put(parts, added)?;
    parts.emit("add", &[residual, sum], product.target, factor(1.0));
    Ok(())
}

/// A product of one input, by which a fused op is made.
#[derive(Clone, Copy)]
struct Product<'a> {
    op: &'static str,
    input: ValueId,
    params: &'a [usize],
    /// Its factor.
    alpha: f64,
    target: Target,
    whole: &'a Whole<'a>,
}

impl<'a> Product<'a> {
    /// Of the first input and all params, into the first output.
    fn of(whole: &'a Whole<'a>, op: &'static str) -> Self {
        Product {
            op,
            input: whole.inputs[0],
            params: whole.params,
            alpha: alpha(whole),
            target: whole.outputs[0],
            whole,
        }
    }

    /// Appends it, then `add` to what is added, or `scale`.
    fn put(self, parts: &mut Parts<'_>, added: Option<ValueId>) -> Result<()> {
        let (op, inputs, alpha) = (self.op, &[self.input], self.alpha);
        if alpha == 1.0 && added.is_none() {
            parts.emit_with(op, inputs, self.params, self.target, Attributes::new());
            return Ok(());
        }
        let plain = parts.like(self.whole.value()?);
        let to = Target::Value(plain);
        parts.emit_with(op, inputs, self.params, to, Attributes::new());
        match added {
            Some(added) => parts.emit("add", &[added, plain], self.target, factor(alpha)),
            None => parts.emit("scale", &[plain], self.target, factor(alpha)),
        }
        Ok(())
    }
}

fn alpha(whole: &Whole<'_>) -> f64 {
    whole.attributes.optional_number("alpha").unwrap_or(1.0)
}

fn factor(alpha: f64) -> Attributes {
    Attributes::new().with("alpha", alpha)
}
