//! `slice_columns` and `slice_columns_backward`.

use espalier_host_device::{Asked, Setting};
use espalier_interface::Result;

use super::rows::{Part, rows};
use super::{Kernel, Op};
use crate::Tensors;

/// Index of the optional input `added`.
const ADDED: usize = 1;

pub fn ops<L: Tensors>() -> Vec<Op<L>> {
    vec![
        Op::new("slice_columns", forward),
        Op::new("slice_columns_backward", backward),
    ]
}

/// The first of the columns, and how many there are.
fn columns(asked: &Asked<'_>) -> Result<[usize; 2]> {
    let first = asked.attributes().count("first").unwrap_or(0);
    Ok([first, asked.attributes().count("width")?])
}

fn forward<L: Tensors>(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Kernel<L>> {
    let [first, width] = columns(asked)?;
    Ok(rows(move |part: Part<'_, '_, L>| {
        let library = part.launch.library;
        part.write(&library.narrow(&part.float(0)?, 1, first, width)?, 0)
    }))
}

fn backward<L: Tensors>(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Kernel<L>> {
    let [first, width] = columns(asked)?;
    let of = asked.columns(asked.output(0));
    let behind = of - first - width;
    let has_added = asked.request.inputs.len() > ADDED;
    let kernel = rows(move |part: Part<'_, '_, L>| {
        let library = part.launch.library;
        let dy = part.float(0)?;
        let added = if has_added {
            Some(part.float(ADDED)?)
        } else {
            None
        };
        // The columns before, the slice's own, and those behind, of which none may be empty.
        let mut parts = Vec::with_capacity(3);
        for (at, columns) in [(0, first), (first + width, behind)] {
            if at == first + width {
                parts.push(match &added {
                    Some(added) => library.add(&library.narrow(added, 1, first, width)?, &dy)?,
                    None => dy.clone(),
                });
            }
            if columns > 0 {
                parts.push(match &added {
                    Some(added) => library.narrow(added, 1, at, columns)?,
                    None => library.full(0.0, &[part.len, columns], library.dtype(&dy))?,
                });
            }
        }
        part.write(&library.concat(&parts, 1)?, 0)
    });
    Ok(kernel.in_place_of(has_added.then_some(ADDED)))
}
