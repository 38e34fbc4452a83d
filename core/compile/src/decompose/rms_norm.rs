//! `rms_norm`, `rms_norm_offset` and their gradients from sums of columns, `rsqrt` and products.
//!
//! With `r = 1 / sqrt(sum(x^2) / G + eps)` for each group of `G` columns: `y = round(x r) w`; `dx =
//! r (g - x r^2 sum(g x) / G)` with `g = dy w`; `dw = sum_t dy round(x r)`, over the groups too.
//! With an offset `o`, `y = x r w + o x r`, `g = dy w + o dy` and `dw = sum_t dy x r`.

use espalier_interface::Result;
use espalier_interface::graph::{Attributes, ValueId};

use super::parts::{Parts, Whole, rows};
use super::unfit;
use crate::grad::Target;

pub(super) fn forward(parts: &mut Parts<'_>, whole: &Whole<'_>) -> Result<()> {
    let x = parts.wide(whole.inputs[0]);
    let (columns, group) = (parts.columns(x), parts.elements(whole.params[0]));
    let inverse = inverse_rms(parts, x, group, whole.attributes.number("eps")?);
    let inverse = parts.repeated(inverse, columns);
    let normal = parts.mul(x, inverse);
    let weight = parts.param(whole.params[0], columns);
    if let Some(offset) = offset(whole) {
        let weighted = parts.mul(normal, weight);
        let sum = Attributes::new().with("alpha", offset);
        parts.finish("add", &[weighted, normal], whole.outputs[0], sum);
        return Ok(());
    }
    let normal = parts.rounded(normal, whole.inputs[0]);
    parts.finish(
        "mul",
        &[normal, weight],
        whole.outputs[0],
        Attributes::new(),
    );
    Ok(())
}

pub(super) fn backward(parts: &mut Parts<'_>, whole: &Whole<'_>) -> Result<()> {
    let [dy, x] = [0, 1].map(|index| parts.wide(whole.inputs[index]));
    let (columns, group) = (parts.columns(x), parts.elements(whole.params[0]));
    let inverse = inverse_rms(parts, x, group, whole.attributes.number("eps")?);
    let weight = parts.param(whole.params[0], columns);
    let mut scaled = parts.mul(dy, weight);
    if let Some(offset) = offset(whole) {
        scaled = parts.add(scaled, dy, offset);
    }
    let products = parts.mul(scaled, x);
    let dots = parts.group_sums(products, group);
    // sum(g x) r^2 / G
    let square = parts.mul(inverse, inverse);
    let pull = parts.mul(dots, square);
    let mean = Attributes::new().with("alpha", 1.0 / group as f64);
    let pull = parts.map("scale", &[pull], mean);
    let pull = parts.repeated(pull, columns);
    let pulled = parts.mul(x, pull);
    let apart = parts.add(scaled, pulled, -1.0);
    let inverse = parts.repeated(inverse, columns);
    parts.finish(
        "mul",
        &[inverse, apart],
        whole.outputs[0],
        Attributes::new(),
    );
    Ok(())
}

/// The fused gradient from the plain one and `add`, to the bit.
pub(super) fn backward_added(parts: &mut Parts<'_>, whole: &Whole<'_>) -> Result<()> {
    let (plain, attributes) = (parts.like(whole.value()?), whole.attributes.clone());
    let (op, to) = ("rms_norm_backward", Target::Value(plain));
    parts.emit_with(op, &whole.inputs[..2], whole.params, to, attributes);
    let sum = Attributes::new().with("alpha", 1.0);
    parts.emit("add", &[whole.inputs[2], plain], whole.outputs[0], sum);
    Ok(())
}

pub(super) fn weight_backward(parts: &mut Parts<'_>, whole: &Whole<'_>) -> Result<()> {
    let Target::Gradient(param) = whole.outputs[0] else {
        return Err(unfit(whole, "its output is not the gradient of a param"));
    };
    let [dy, x] = [0, 1].map(|index| parts.wide(whole.inputs[index]));
    let (columns, group) = (parts.columns(x), parts.elements(param));
    let inverse = inverse_rms(parts, x, group, whole.attributes.number("eps")?);
    let inverse = parts.repeated(inverse, columns);
    let mut normal = parts.mul(x, inverse);
    if offset(whole).is_none() {
        normal = parts.rounded(normal, whole.inputs[1]);
    }
    let mut products = parts.mul(dy, normal);
    if columns > group {
        let tile = Attributes::new().with("tile", columns / group);
        products = parts.made("contract", &[products], rows(group), tile);
    }
    parts.emit(
        "bias_backward",
        &[products],
        whole.outputs[0],
        Attributes::new(),
    );
    Ok(())
}

/// What is added to the weight in `rms_norm_offset`; none for `rms_norm`, which rounds instead.
fn offset(whole: &Whole<'_>) -> Option<f64> {
    whole.attributes.optional_number("offset")
}

/// `r` of each group of `group` columns, `[T, D / G]`.
fn inverse_rms(parts: &mut Parts<'_>, x: ValueId, group: u64, eps: f64) -> ValueId {
    let squares = parts.mul(x, x);
    let sums = parts.group_sums(squares, group);
    let attributes = Attributes::new()
        .with("alpha", 1.0 / group as f64)
        .with("beta", eps);
    parts.map("rsqrt", &[sums], attributes)
}
