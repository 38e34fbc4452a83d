//! `rms_norm`, `rms_norm_offset` and their gradients.

use espalier_host_device::{Asked, Made};
use espalier_interface::Result;

use super::columns::{ColumnSums, Factors, Normal, Sum};
use super::{Op, computed, elements, gradient, most_elements, op, stored, version};
use crate::arguments::Arguments;
use crate::kit::Kit;
use crate::modules::THREADS;
use crate::sources::RMS_NORM;

pub const OPS: &[Op] = &[
    op("rms_norm", forward),
    op("rms_norm_backward", backward),
    version(2, "rms_norm_backward", backward),
    op("rms_norm_weight_backward", weight_backward),
    op("rms_norm_offset", forward),
    op("rms_norm_offset_backward", backward),
    op("rms_norm_offset_weight_backward", weight_backward),
];

/// Index of the input `added`, which version 1 does not have.
const ADDED: usize = 2;

/// The widest row that a warp norms alone.
const WIDEST_OF_WARP: usize = 1024;

/// Shared memory of a sum over a block.
pub(super) const SHARED_BYTES: u32 = 32;

/// Threads of a row of `width` columns.
fn threads(width: usize) -> u64 {
    if width <= WIDEST_OF_WARP { 32 } else { THREADS }
}

/// Blocks for `rows` rows.
pub(super) fn blocks(rows: usize, width: usize) -> [u64; 3] {
    [(rows as u64 * threads(width)).div_ceil(THREADS), 1, 1]
}

/// The arguments with the threads of a row and the extents.
pub(super) fn with_rows(arguments: Arguments, rows: usize, width: usize) -> Arguments {
    let arguments = arguments.with(threads(width) as i32);
    arguments.with(width as i64).with(rows as i64)
}

/// What is added to the weight, if anything is, and the beginning of the kernels' names.
fn form(asked: &Asked<'_>) -> (Option<f32>, &'static str) {
    match asked.attributes().optional_number("offset") {
        Some(offset) => (Some(offset as f32), "rms_norm_offset"),
        None => (None, "rms_norm"),
    }
}

/// The arguments with the offset, of a kernel that takes one.
fn with_offset(arguments: Arguments, offset: Option<f32>) -> Arguments {
    match offset {
        Some(offset) => arguments.with(offset),
        None => arguments,
    }
}

fn forward(asked: &Asked<'_>, kit: &Kit) -> Result<Made> {
    let dtype = computed(asked, asked.input(0).dtype)?;
    let weight = stored(asked, asked.stored(0)?)?;
    let eps = asked.attributes().number("eps")? as f32;
    let [_, width] = asked.matrix(0)?;
    let (offset, name) = form(asked);
    let kernel = kit.function(RMS_NORM, &format!("{name}_{dtype}_{weight}"))?;
    Ok(Made::new(move |call| {
        let (x, y) = (call.input_place(0), call.output_place(0));
        let rows = elements(y) / width;
        let arguments = Arguments::new()
            .at(x)
            .at(call.param_place(0))
            .at(y)
            .with(eps);
        let arguments = with_rows(arguments, rows, width);
        let arguments = with_offset(arguments, offset);
        kernel.launch(blocks(rows, width), SHARED_BYTES, &arguments)
    }))
}

fn backward(asked: &Asked<'_>, kit: &Kit) -> Result<Made> {
    let dtype = computed(asked, asked.input(0).dtype)?;
    let weight = stored(asked, asked.stored(0)?)?;
    let eps = asked.attributes().number("eps")? as f32;
    let [_, width] = asked.matrix(0)?;
    let has_added = asked.request.inputs.len() > ADDED;
    let (offset, name) = form(asked);
    let kernel = kit.function(RMS_NORM, &format!("{name}_backward_{dtype}_{weight}"))?;
    let made = Made::new(move |call| {
        let (dy, x, dx) = (
            call.input_place(0),
            call.input_place(1),
            call.output_place(0),
        );
        let rows = elements(dx) / width;
        let arguments = Arguments::new().at(dy).at(x).at(call.param_place(0));
        let added = has_added.then(|| call.input_place(ADDED));
        let arguments = arguments.at_or_null(added).at(dx).with(eps);
        let arguments = with_rows(arguments, rows, width);
        let arguments = with_offset(arguments, offset);
        kernel.launch(blocks(rows, width), SHARED_BYTES, &arguments)
    });
    Ok(if has_added {
        made.in_place_of(ADDED)
    } else {
        made
    })
}

fn weight_backward(asked: &Asked<'_>, kit: &Kit) -> Result<Made> {
    let dtype = computed(asked, asked.input(0).dtype)?;
    let sum = gradient(asked, 0)?;
    let eps = asked.attributes().number("eps")? as f32;
    let width = asked.elements(asked.output(0)).max(1);
    let most = most_elements(asked, asked.input(0)) / width;
    let inverse = kit.function(RMS_NORM, &format!("inverse_rms_{dtype}"))?;
    let sums = ColumnSums::new(kit, [dtype, sum])?;
    let normal = match form(asked) {
        (Some(_), _) => Normal::Exact,
        (None, _) => Normal::Rounded,
    };
    let made = Made::new(move |call| {
        let (dy, x) = (call.input_place(0), call.input_place(1));
        let rows = elements(dy) / width;
        let workspace = call.workspace_place().expect("a kernel asked for it");
        let factors = workspace.address.as_ptr() as u64;
        let partial = factors + (4 * most).next_multiple_of(64) as u64;
        let arguments = Arguments::new().at(x).with(factors).with(eps);
        let arguments = with_rows(arguments, rows, width);
        inverse.launch(blocks(rows, width), SHARED_BYTES, &arguments)?;
        let places = [dy, call.output_place(0)];
        let factors = Factors {
            inverse: factors,
            mean: 0,
            normal,
        };
        sums.launch(places, Some(x), factors, partial, Sum::Added, [rows, width])
    });
    let bytes = (4 * most).next_multiple_of(64) + ColumnSums::workspace_bytes(most, width);
    Ok(made.with_workspace(bytes))
}
