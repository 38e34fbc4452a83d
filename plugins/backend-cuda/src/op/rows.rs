//! `cross_entropy` and its gradient, and the primitives that give a number of each row, or rows.

use espalier_host_device::{Asked, Made};
use espalier_interface::Result;

use super::{Op, computed, elements, op, reduced, stored, version};
use crate::arguments::Arguments;
use crate::kit::Kit;
use crate::modules::TILE;
use crate::sources::ROWS;

pub const OPS: &[Op] = &[
    op("cross_entropy", cross_entropy),
    op("cross_entropy_backward", cross_entropy_backward),
    version(2, "cross_entropy_backward", |asked, kit| {
        Ok(cross_entropy_backward(asked, kit)?.in_place_of(0))
    }),
    op("expand", expand),
    op("contract", contract),
    op("broadcast_param", broadcast_param),
    op("row_max", row_max),
    op("is_argmax", is_argmax),
    op("pick", pick),
    op("one_hot", one_hot),
    op("scale_trained", scale_trained),
];

/// Shared memory of a maximum over a block.
const SHARED_BYTES: u32 = 32;

/// Shared memory of what the 8 warps of a block know of a row: 3 numbers each.
const ONLINE_BYTES: u32 = 8 * 12;

/// Rows that one launch has at most, where they are the second extent of its grid.
const MOST_ROWS: usize = 65_535;

fn cross_entropy(asked: &Asked<'_>, kit: &Kit) -> Result<Made> {
    let dtype = computed(asked, asked.input(0).dtype)?;
    reduced(asked, asked.output(0).dtype)?;
    let width = asked.columns(asked.input(0)) as i64;
    let faults = kit.faults.clone();
    let kernel = kit.function(ROWS, &format!("cross_entropy_{dtype}"))?;
    Ok(Made::new(move |call| {
        let [logits, labels] = [0, 1].map(|index| call.input_place(index));
        let [loss, lse, correct] = [0, 1, 2].map(|index| call.output_place(index));
        let arguments = Arguments::new()
            .at(logits)
            .at(labels)
            .at(loss)
            .at(lse)
            .at(correct);
        let arguments = arguments.with(width).with(faults.address());
        kernel.launch([call.tokens as u64, 1, 1], ONLINE_BYTES, &arguments)
    }))
}

fn cross_entropy_backward(asked: &Asked<'_>, kit: &Kit) -> Result<Made> {
    let dtype = computed(asked, asked.input(0).dtype)?;
    reduced(asked, asked.input(2).dtype)?;
    let places = asked.scalars(["factor"])?;
    let width = asked.columns(asked.input(0));
    let bytes = asked.input(0).dtype.bytes() as usize;
    let kernel = kit.function(ROWS, &format!("cross_entropy_backward_{dtype}"))?;
    Ok(Made::new(move |call| {
        let [factor] = call.scalars_at(places);
        let [logits, labels, lse] = [0, 1, 2].map(|index| call.input_place(index));
        let dlogits = call.output_place(0);
        let blocks = width.div_ceil(TILE) as u64;
        for first in (0..call.tokens).step_by(MOST_ROWS) {
            let rows = MOST_ROWS.min(call.tokens - first);
            let from =
                |place, size: usize| crate::arguments::address(place) + (first * size) as u64;
            let arguments = Arguments::new().with(from(logits, width * bytes));
            let arguments = arguments.with(from(labels, 4)).with(from(lse, 4));
            let arguments = arguments.with(from(dlogits, width * bytes));
            let arguments = arguments.with(factor as f32).with(width as i64);
            kernel.launch([blocks, rows as u64, 1], 0, &arguments)?;
        }
        Ok(())
    }))
}

/// How often each column is repeated.
fn repeat(asked: &Asked<'_>) -> i64 {
    asked.attributes().count("repeat").unwrap_or(1) as i64
}

fn expand(asked: &Asked<'_>, kit: &Kit) -> Result<Made> {
    let dtype = computed(asked, asked.input(0).dtype)?;
    let columns = asked.columns(asked.input(0)) as i64;
    let (repeat, width) = (repeat(asked), asked.columns(asked.output(0)) as i64);
    let kernel = kit.function(ROWS, &format!("expand_{dtype}"))?;
    Ok(Made::new(move |call| {
        let (x, y) = (call.input_place(0), call.output_place(0));
        let arguments = Arguments::new().at(x).at(y).with(columns).with(repeat);
        kernel.launch_over(elements(y), &arguments.with(width).with(elements(y) as i64))
    }))
}

fn contract(asked: &Asked<'_>, kit: &Kit) -> Result<Made> {
    let dtype = computed(asked, asked.input(0).dtype)?;
    let columns = asked.columns(asked.output(0)) as i64;
    let (repeat, width) = (repeat(asked), asked.columns(asked.input(0)) as i64);
    let kernel = kit.function(ROWS, &format!("contract_{dtype}"))?;
    Ok(Made::new(move |call| {
        let (x, y) = (call.input_place(0), call.output_place(0));
        let arguments = Arguments::new().at(x).at(y).with(columns).with(repeat);
        // A warp has an element.
        kernel.launch_over(
            32 * elements(y),
            &arguments.with(width).with(elements(y) as i64),
        )
    }))
}

fn broadcast_param(asked: &Asked<'_>, kit: &Kit) -> Result<Made> {
    let dtype = computed(asked, asked.output(0).dtype)?;
    let weight = stored(asked, asked.stored(0)?)?;
    let width = asked.columns(asked.output(0)) as i64;
    let kernel = kit.function(ROWS, &format!("broadcast_{weight}_{dtype}"))?;
    Ok(Made::new(move |call| {
        let (w, y) = (call.param_place(0), call.output_place(0));
        let arguments = Arguments::new().at(w).at(y).with(elements(w) as i64);
        kernel.launch_over(elements(y), &arguments.with(width).with(elements(y) as i64))
    }))
}

fn row_max(asked: &Asked<'_>, kit: &Kit) -> Result<Made> {
    let dtype = computed(asked, asked.input(0).dtype)?;
    let width = asked.columns(asked.input(0)) as i64;
    let kernel = kit.function(ROWS, &format!("row_max_{dtype}"))?;
    Ok(Made::new(move |call| {
        let (x, y) = (call.input_place(0), call.output_place(0));
        let arguments = Arguments::new().at(x).at(y).with(width);
        kernel.launch([call.tokens as u64, 1, 1], SHARED_BYTES, &arguments)
    }))
}

fn is_argmax(asked: &Asked<'_>, kit: &Kit) -> Result<Made> {
    let dtype = computed(asked, asked.input(0).dtype)?;
    let width = asked.columns(asked.input(0)) as i64;
    let kernel = kit.function(ROWS, &format!("is_argmax_{dtype}"))?;
    Ok(Made::new(move |call| {
        let (x, index, y) = (
            call.input_place(0),
            call.input_place(1),
            call.output_place(0),
        );
        let arguments = Arguments::new().at(x).at(index).at(y).with(width);
        kernel.launch([call.tokens as u64, 1, 1], SHARED_BYTES, &arguments)
    }))
}

fn pick(asked: &Asked<'_>, kit: &Kit) -> Result<Made> {
    let dtype = computed(asked, asked.input(0).dtype)?;
    let width = asked.columns(asked.input(0)) as i64;
    let faults = kit.faults.clone();
    let kernel = kit.function(ROWS, &format!("pick_{dtype}"))?;
    Ok(Made::new(move |call| {
        let (x, index, y) = (
            call.input_place(0),
            call.input_place(1),
            call.output_place(0),
        );
        let arguments = Arguments::new().at(x).at(index).at(y).with(width);
        let arguments = arguments.with(call.tokens as i64).with(faults.address());
        kernel.launch_over(call.tokens, &arguments)
    }))
}

fn one_hot(asked: &Asked<'_>, kit: &Kit) -> Result<Made> {
    let dtype = computed(asked, asked.output(0).dtype)?;
    let width = asked.columns(asked.output(0)) as i64;
    let faults = kit.faults.clone();
    let kernel = kit.function(ROWS, &format!("one_hot_{dtype}"))?;
    Ok(Made::new(move |call| {
        let (index, y) = (call.input_place(0), call.output_place(0));
        let arguments = Arguments::new().at(index).at(y).with(width);
        let arguments = arguments.with(elements(y) as i64).with(faults.address());
        kernel.launch_over(elements(y), &arguments)
    }))
}

fn scale_trained(asked: &Asked<'_>, kit: &Kit) -> Result<Made> {
    let dtype = computed(asked, asked.input(0).dtype)?;
    let places = asked.scalars(["factor"])?;
    let width = asked.columns(asked.input(0)) as i64;
    let kernel = kit.function(ROWS, &format!("scale_trained_{dtype}"))?;
    Ok(Made::new(move |call| {
        let [factor] = call.scalars_at(places);
        let (x, labels, y) = (
            call.input_place(0),
            call.input_place(1),
            call.output_place(0),
        );
        let arguments = Arguments::new().at(x).at(labels).at(y).with(factor as f32);
        kernel.launch_over(elements(y), &arguments.with(width).with(elements(y) as i64))
    }))
}
