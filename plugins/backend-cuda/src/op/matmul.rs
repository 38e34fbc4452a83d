//! `matmul`: the product of two values.

use espalier_host_device::{Asked, Made};
use espalier_interface::graph::Dim;
use espalier_interface::{Operand, Result};

use super::product::{Direction, Epilogue, Finish, Product, ProductLaunch};
use super::{Op, computed, op};
use crate::arguments::address;
use crate::kit::Kit;

pub const OPS: &[Op] = &[op("matmul", prepare)];

fn prepare(asked: &Asked<'_>, kit: &Kit) -> Result<Made> {
    let dtype = asked.input(0).dtype;
    computed(asked, dtype)?;
    let flags = ["transpose_a", "transpose_b"].map(|name| asked.attributes().flag(name));
    let extents = |operand: &Operand| [operand.shape[0], operand.shape[1]];
    let [a, b] = [0, 1].map(|index| extents(asked.input(index)));
    let direction = |is_deep: bool| {
        if is_deep {
            Direction::Deep
        } else {
            Direction::Wide
        }
    };
    // The sum goes over the columns of a and the rows of b.
    let directions = [direction(!flags[0]), direction(flags[1])];
    let strides = match [a[1], b[1]] {
        [Dim::Fixed(a), Dim::Fixed(b)] => Some([a as usize, b as usize]),
        _ => None,
    };
    let product = Product::new(kit, [dtype; 2], directions, strides)?;
    Ok(Made::new(move |call| {
        let size = |dim: Dim| match dim {
            Dim::Fixed(extent) => extent as usize,
            _ => call.tokens,
        };
        let [over_rows, over_columns] = flags.map(usize::from);
        product.launch(&ProductLaunch {
            matrices: [0, 1].map(|index| address(call.input_place(index))),
            strides: [size(a[1]), size(b[1])],
            result: address(call.output_place(0)),
            extents: [
                size(a[over_rows]),
                size(b[1 - over_columns]),
                size(a[1 - over_rows]),
            ],
            finish: Finish::Write(Epilogue::SUM),
        })
    }))
}
