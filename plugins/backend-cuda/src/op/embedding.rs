//! `embedding` and `embedding_backward`.

use espalier_host_device::{Asked, Made};
use espalier_interface::Result;

use super::{Op, computed, gradient, op, stored};
use crate::arguments::Arguments;
use crate::kit::Kit;
use crate::modules::TILE;
use crate::sources::EMBEDDING;

pub const OPS: &[Op] = &[op("embedding", forward), op("embedding_backward", backward)];

/// Shared memory of a block that looks for an earlier token.
const SHARED_BYTES: u32 = 4;

/// How a table lies in memory.
#[derive(Clone, Copy)]
struct Table {
    /// Elements from a token to the next, and from a token's number to its next.
    strides: [i64; 2],
    vocabulary: i64,
    width: i64,
}

/// The table of shape `[rows, columns]`.
fn table(asked: &Asked<'_>, [rows, columns]: [usize; 2]) -> Table {
    let [rows, columns] = [rows, columns].map(|extent| extent as i64);
    if asked.attributes().flag("transposed") {
        Table {
            strides: [1, columns],
            vocabulary: columns,
            width: rows,
        }
    } else {
        Table {
            strides: [columns, 1],
            vocabulary: rows,
            width: columns,
        }
    }
}

fn forward(asked: &Asked<'_>, kit: &Kit) -> Result<Made> {
    let dtype = computed(asked, asked.output(0).dtype)?;
    let weight = stored(asked, asked.stored(0)?)?;
    let table = table(asked, asked.matrix(0)?);
    let faults = kit.faults.clone();
    let kernel = kit.function(EMBEDDING, &format!("embedding_{weight}_{dtype}"))?;
    Ok(Made::new(move |call| {
        let (tokens, y) = (call.input_place(0), call.output_place(0));
        let arguments = Arguments::new().at(tokens).at(call.param_place(0)).at(y);
        let [row, column] = table.strides;
        let arguments = arguments.with(row).with(column).with(table.vocabulary);
        let tiles = (table.width as usize).div_ceil(TILE);
        let arguments = arguments.with(table.width).with(tiles as i32);
        let blocks = [(call.tokens * tiles) as u64, 1, 1];
        kernel.launch(blocks, 0, &arguments.with(faults.address()))
    }))
}

fn backward(asked: &Asked<'_>, kit: &Kit) -> Result<Made> {
    let (dy, dtable) = (asked.input(0), asked.output(0));
    let (dtype, sum) = (computed(asked, dy.dtype)?, gradient(asked, 0)?);
    let columns = asked.columns(dtable);
    let rows = asked.elements(dtable) / columns.max(1);
    let table = table(asked, [rows, columns]);
    let faults = kit.faults.clone();
    let kernel = kit.function(EMBEDDING, &format!("embedding_backward_{dtype}_{sum}"))?;
    Ok(Made::new(move |call| {
        let (dy, tokens) = (call.input_place(0), call.input_place(1));
        let arguments = Arguments::new().at(dy).at(tokens).at(call.output_place(0));
        let [row, column] = table.strides;
        let arguments = arguments.with(row).with(column).with(table.vocabulary);
        let arguments = arguments.with(table.width).with(call.tokens as i64);
        let arguments = arguments.with(faults.address());
        kernel.launch([call.tokens as u64, 1, 1], SHARED_BYTES, &arguments)
    }))
}
