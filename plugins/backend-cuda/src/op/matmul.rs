//! `matmul`: the product of two values.

use espalier_host_device::{Asked, Made};
use espalier_interface::graph::Dim;
use espalier_interface::{Operand, Result};

use super::product::{Epilogue, Finish, Product, ProductLaunch, ProductRequest};
use super::weight::workspace;
use super::{Op, computed, op};
use crate::arguments::address;
use crate::direction::Direction;
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
    let [over_rows, over_columns] = flags.map(usize::from);
    let of = move |tokens: usize| {
        let size = |dim: Dim| match dim {
            Dim::Fixed(extent) => extent as usize,
            _ => tokens,
        };
        let extents = [a[over_rows], b[1 - over_columns], a[1 - over_rows]];
        ([a[1], b[1]].map(size), extents.map(size))
    };
    let (strides, extents) = of(asked.request.max_tokens as usize);
    let products = ProductRequest {
        dtypes: [dtype; 2],
        directions,
        strides,
        has_fixed_strides: [a[1], b[1]].iter().all(|dim| matches!(dim, Dim::Fixed(_))),
        extents,
        result: dtype,
        bias: None,
        alpha: 1.0,
        is_added_to: false,
        has_residual: false,
    };
    let product = Product::new(kit, &products)?;
    let bytes = product.workspace_bytes();
    let made = Made::new(move |call| {
        let (strides, extents) = of(call.tokens);
        product.launch(&ProductLaunch {
            matrices: [0, 1].map(|index| address(call.input_place(index))),
            strides,
            result: address(call.output_place(0)),
            extents,
            finish: Finish::Write(Epilogue::SUM),
            workspace: workspace(call),
        })
    });
    Ok(made.with_workspace(bytes))
}
