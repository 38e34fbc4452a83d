//! `layer_norm` and its gradients from sums of columns, `rsqrt`, sums and products.
//!
//! With `c = x - sum(x) / D`, `r = 1 / sqrt(sum(c^2) / D + eps)` and `n = c r`: `y = n w + b`;
//! `dx = r (g - sum(g) / D - n sum(g n) / D)` with `g = dy w`; `dw = sum_t dy n`.

use espalier_interface::Result;
use espalier_interface::graph::{Attributes, ValueId};

use super::parts::{Parts, Whole};

/// A row over all columns.
struct Rows {
    /// `r`, in each column.
    inverse: ValueId,
    /// `n`.
    normal: ValueId,
}

pub(super) fn forward(parts: &mut Parts<'_>, whole: &Whole<'_>) -> Result<()> {
    let x = parts.wide(whole.inputs[0]);
    let columns = parts.columns(x);
    let Rows { normal, .. } = rows(parts, x, whole.attributes.number("eps")?);
    let weight = parts.param(whole.params[0], columns);
    let to = whole.outputs[0];
    let Some(&bias) = whole.params.get(1) else {
        parts.finish("mul", &[normal, weight], to, Attributes::new());
        return Ok(());
    };
    let weighted = parts.mul(normal, weight);
    let bias = parts.param(bias, columns);
    let sum = Attributes::new().with("alpha", 1.0);
    parts.finish("add", &[weighted, bias], to, sum);
    Ok(())
}

pub(super) fn backward(parts: &mut Parts<'_>, whole: &Whole<'_>) -> Result<()> {
    let [dy, x] = [0, 1].map(|index| parts.wide(whole.inputs[index]));
    let columns = parts.columns(x);
    let Rows { inverse, normal } = rows(parts, x, whole.attributes.number("eps")?);
    let weight = parts.param(whole.params[0], columns);
    let scaled = parts.mul(dy, weight);
    let level = mean(parts, scaled);
    let products = parts.mul(scaled, normal);
    let pull = mean(parts, products);
    let pulled = parts.mul(normal, pull);
    let apart = parts.add(scaled, level, -1.0);
    let apart = parts.add(apart, pulled, -1.0);
    let to = whole.outputs[0];
    parts.finish("mul", &[inverse, apart], to, Attributes::new());
    Ok(())
}

pub(super) fn weight_backward(parts: &mut Parts<'_>, whole: &Whole<'_>) -> Result<()> {
    let [dy, x] = [0, 1].map(|index| parts.wide(whole.inputs[index]));
    let Rows { normal, .. } = rows(parts, x, whole.attributes.number("eps")?);
    let products = parts.mul(dy, normal);
    let to = whole.outputs[0];
    parts.emit("bias_backward", &[products], to, Attributes::new());
    Ok(())
}

/// The mean of each row, in each column.
fn mean(parts: &mut Parts<'_>, x: ValueId) -> ValueId {
    let columns = parts.columns(x);
    let sum = parts.group_sums(x, columns);
    let share = Attributes::new().with("alpha", 1.0 / columns as f64);
    let mean = parts.map("scale", &[sum], share);
    parts.repeated(mean, columns)
}

/// `r` and `n` of x.
fn rows(parts: &mut Parts<'_>, x: ValueId, eps: f64) -> Rows {
    let columns = parts.columns(x);
    let mean = mean(parts, x);
    let centred = parts.add(x, mean, -1.0);
    let squares = parts.mul(centred, centred);
    let sums = parts.group_sums(squares, columns);
    let attributes = Attributes::new()
        .with("alpha", 1.0 / columns as f64)
        .with("beta", eps);
    let inverse = parts.map("rsqrt", &[sums], attributes);
    let inverse = parts.repeated(inverse, columns);
    Rows {
        inverse,
        normal: parts.mul(centred, inverse),
    }
}
