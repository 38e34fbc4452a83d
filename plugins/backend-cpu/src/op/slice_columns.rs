//! `slice_columns` and `slice_columns_backward`.

use espalier_host_device::{Asked, Made};
use espalier_interface::{Operand, Result};
use espalier_kernels::added::Added;
use espalier_kernels::slice_columns::{self as kernel, Columns};

use super::{Op, Setting, added};
use crate::dispatch::compute;

pub const OPS: &[Op] = &[
    Op {
        name: "slice_columns",
        prepare: forward,
    },
    Op {
        name: "slice_columns_backward",
        prepare: backward,
    },
];

/// Index of the optional input `added`.
const ADDED: usize = 1;

/// The columns of `whole`.
fn columns(asked: &Asked<'_>, whole: &Operand) -> Result<Columns> {
    Ok(Columns {
        first: asked.attributes().count("first").unwrap_or(0),
        width: asked.attributes().count("width")?,
        of: asked.columns(whole),
    })
}

fn forward(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Made> {
    let columns = columns(asked, asked.input(0))?;
    compute!(asked, asked.input(0).dtype, E => {
        Ok(Made::new(move |call| {
            kernel::slice_columns::<E>(call.services, columns, call.input(0), call.output(0));
            Ok(())
        }))
    })
}

fn backward(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Made> {
    let columns = columns(asked, asked.output(0))?;
    let has_added = asked.request.inputs.len() > ADDED;
    compute!(asked, asked.input(0).dtype, E => {
        let run = Made::new(move |call| {
            let added = if has_added { added(call, ADDED) } else { Added::Nothing };
            let (dy, dx) = (call.input::<E>(0), call.output(0));
            kernel::slice_columns_backward(call.services, columns, dy, added, dx);
            Ok(())
        });
        Ok(if has_added { run.in_place_of(ADDED) } else { run })
    })
}
