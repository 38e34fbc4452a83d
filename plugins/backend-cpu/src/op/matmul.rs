//! `matmul`: the product of two values.

use espalier_host_device::{Asked, Made};
use espalier_interface::graph::Dim;
use espalier_interface::{Operand, Result};
use espalier_kernels::matmul::{self as kernel, Combine, Dense, Output, workspace_bytes};

use super::{Op, Setting};
use crate::dispatch::compute;

pub const OPS: &[Op] = &[Op {
    name: "matmul",
    prepare,
}];

fn prepare(asked: &Asked<'_>, setting: &Setting<'_>) -> Result<Made> {
    let flags = ["transpose_a", "transpose_b"].map(|name| asked.attributes().flag(name));
    let extents = |operand: &Operand| [operand.shape[0], operand.shape[1]];
    let [stored_a, stored_b] = [0, 1].map(|index| extents(asked.input(index)));
    let [_, cols] = extents(asked.output(0));
    let isa = setting.isa;
    let [a, b] = [stored_a, stored_b].map(|stored| sized(stored, asked.max_tokens()));
    let [over_rows, over_cols] = flags.map(usize::from);
    let most = [a[over_rows], b[1 - over_cols], a[1 - over_rows]];
    compute!(asked, asked.input(0).dtype, E => {
        let run = Made::new(move |call| {
            let size = |extents| sized(extents, call.tokens);
            let ([a_rows, a_cols], [b_rows, b_cols]) = (size(stored_a), size(stored_b));
            let a = Dense::new(call.input::<E>(0), a_rows, a_cols);
            let b = Dense::new(call.input::<E>(1), b_rows, b_cols);
            let left = if flags[0] { kernel::Operand::over_rows(&a) } else { kernel::Operand::over_cols(&a) };
            let right = if flags[1] { kernel::Operand::over_cols(&b) } else { kernel::Operand::over_rows(&b) };
            let out = Output {
                values: call.output::<E>(0),
                stride: size([cols, cols])[1],
                combine: Combine::PRODUCT,
                bias: None,
            };
            kernel::matmul::<E>(isa, call.services, left, right, out, call.workspace_bytes());
            Ok(())
        });
        Ok(run.with_workspace(workspace_bytes::<E>(isa, setting.threads, most)))
    })
}

/// Extents of a matrix with `tokens` tokens.
fn sized(extents: [Dim; 2], tokens: usize) -> [usize; 2] {
    extents.map(|dim| match dim {
        Dim::Fixed(extent) => extent as usize,
        _ => tokens,
    })
}
