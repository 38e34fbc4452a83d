//! `layer_norm` and its gradients.

use espalier_host_device::{Asked, Made};
use espalier_interface::Result;

use super::columns::{ColumnSums, Factors, Normal, Sum};
use super::rms_norm::{SHARED_BYTES, blocks, with_rows};
use super::{Op, computed, elements, gradient, most_elements, op, stored};
use crate::arguments::Arguments;
use crate::kit::Kit;
use crate::sources::LAYER_NORM;

pub const OPS: &[Op] = &[
    op("layer_norm", forward),
    op("layer_norm_backward", backward),
    op("layer_norm_weight_backward", weight_backward),
];

/// The number of a param's type, as the kernels have it.
fn type_of(asked: &Asked<'_>, index: usize) -> Result<i32> {
    Ok(match stored(asked, asked.stored(index)?)? {
        "f32" => 0,
        "bf16" => 1,
        _ => 2,
    })
}

fn forward(asked: &Asked<'_>, kit: &Kit) -> Result<Made> {
    let dtype = computed(asked, asked.input(0).dtype)?;
    let has_bias = asked.request.params.len() > 1;
    let weight = type_of(asked, 0)?;
    let bias = if has_bias { type_of(asked, 1)? } else { 0 };
    let eps = asked.attributes().number("eps")? as f32;
    let width = asked.columns(asked.input(0));
    let kernel = kit.function(LAYER_NORM, &format!("layer_norm_{dtype}"))?;
    Ok(Made::new(move |call| {
        let (x, y) = (call.input_place(0), call.output_place(0));
        let rows = elements(y) / width;
        let arguments = Arguments::new().at(x).at(call.param_place(0));
        let arguments = arguments.at_or_null(has_bias.then(|| call.param_place(1)));
        let arguments = arguments.at(y).with(weight).with(bias).with(eps);
        let arguments = with_rows(arguments, rows, width);
        kernel.launch(blocks(rows, width), SHARED_BYTES, &arguments)
    }))
}

fn backward(asked: &Asked<'_>, kit: &Kit) -> Result<Made> {
    let dtype = computed(asked, asked.input(0).dtype)?;
    let weight = type_of(asked, 0)?;
    let eps = asked.attributes().number("eps")? as f32;
    let width = asked.columns(asked.input(0));
    let kernel = kit.function(LAYER_NORM, &format!("layer_norm_backward_{dtype}"))?;
    Ok(Made::new(move |call| {
        let (dy, x) = (call.input_place(0), call.input_place(1));
        let dx = call.output_place(0);
        let rows = elements(dx) / width;
        let arguments = Arguments::new().at(dy).at(x).at(call.param_place(0));
        let arguments = arguments.at(dx).with(weight).with(eps);
        let arguments = with_rows(arguments, rows, width);
        kernel.launch(blocks(rows, width), SHARED_BYTES, &arguments)
    }))
}

fn weight_backward(asked: &Asked<'_>, kit: &Kit) -> Result<Made> {
    let dtype = computed(asked, asked.input(0).dtype)?;
    let sum = gradient(asked, 0)?;
    let eps = asked.attributes().number("eps")? as f32;
    let width = asked.elements(asked.output(0)).max(1);
    let most = most_elements(asked, asked.input(0)) / width;
    let moments = kit.function(LAYER_NORM, &format!("row_moments_{dtype}"))?;
    let sums = ColumnSums::new(kit, [dtype, sum])?;
    let bytes_of_each = (4 * most).next_multiple_of(64);
    let made = Made::new(move |call| {
        let (dy, x) = (call.input_place(0), call.input_place(1));
        let rows = elements(dy) / width;
        let workspace = call.workspace_place().expect("a kernel asked for it");
        let inverse = workspace.address.as_ptr() as u64;
        let [mean, partial] = [1, 2].map(|index| inverse + (index * bytes_of_each) as u64);
        let arguments = Arguments::new().at(x).with(inverse).with(mean).with(eps);
        let arguments = with_rows(arguments, rows, width);
        moments.launch(blocks(rows, width), SHARED_BYTES, &arguments)?;
        let factors = Factors {
            inverse,
            mean,
            normal: Normal::Exact,
        };
        let places = [dy, call.output_place(0)];
        sums.launch(places, Some(x), factors, partial, Sum::Added, [rows, width])
    });
    let bytes = 2 * bytes_of_each + ColumnSums::workspace_bytes(most, width);
    Ok(made.with_workspace(bytes))
}
