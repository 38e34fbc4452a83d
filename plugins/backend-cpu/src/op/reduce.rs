//! `sum_squares` and `first_not_finite`.

use espalier_host_device::{Asked, Made};
use espalier_interface::Result;
use espalier_kernels::reduce as kernel;

use super::{Op, Setting};
use crate::dispatch::stored;

pub const OPS: &[Op] = &[
    Op {
        name: "sum_squares",
        prepare: sum_squares,
    },
    Op {
        name: "first_not_finite",
        prepare: first_not_finite,
    },
];

fn sum_squares(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Made> {
    let elements = most_elements(asked)?;
    stored!(asked, asked.input(0).dtype, E => {
        let run = Made::new(|call| {
            let x = call.input::<E>(0);
            let workspace = call.workspace(kernel::partials(x.len()));
            call.output::<f64>(0)[0] = kernel::sum_squares(call.services, x, workspace);
            Ok(())
        });
        Ok(run.with_workspace(8 * kernel::partials(elements)))
    })
}

fn first_not_finite(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Made> {
    stored!(asked, asked.input(0).dtype, E => {
        Ok(Made::new(|call| {
            let found = kernel::first_non_finite(call.services, call.input::<E>(0));
            call.output_longs(0)[0] = found.map_or(-1, |at| at as i64);
            Ok(())
        }))
    })
}

/// Elements of input 0 at the largest launch.
fn most_elements(asked: &Asked<'_>) -> Result<usize> {
    let (tokens, sequences) = (asked.request.max_tokens, asked.request.max_sequences);
    let ranges = asked.ranges();
    let bytes = ranges[0].bytes(tokens, sequences);
    let bytes = bytes.ok_or_else(|| asked.invalid("the number of bytes exceeds u64".into()))?;
    Ok((bytes / ranges[0].dtype.bytes().max(1)) as usize)
}
