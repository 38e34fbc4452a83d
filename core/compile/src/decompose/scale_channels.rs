//! `scale_channels` and the gradient of its weight from products and column sums.

use espalier_interface::Result;
use espalier_interface::graph::Attributes;

use super::parts::{Parts, Whole};

pub(super) fn forward(parts: &mut Parts<'_>, whole: &Whole<'_>) -> Result<()> {
    let x = parts.wide(whole.inputs[0]);
    let columns = parts.columns(x);
    let weight = parts.param(whole.params[0], columns);
    parts.finish("mul", &[x, weight], whole.outputs[0], Attributes::new());
    Ok(())
}

pub(super) fn weight_backward(parts: &mut Parts<'_>, whole: &Whole<'_>) -> Result<()> {
    let [dy, x] = [0, 1].map(|index| parts.wide(whole.inputs[index]));
    let products = parts.mul(dy, x);
    parts.emit(
        "bias_backward",
        &[products],
        whole.outputs[0],
        Attributes::new(),
    );
    Ok(())
}
