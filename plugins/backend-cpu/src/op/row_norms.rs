//! `adapted_row_norms`, over dense and packed weights.

use espalier_host_device::{Asked, Made};
use espalier_interface::{Result, WeightLayout};
use espalier_kernels::param_value::param_value;
use espalier_kernels::row_norms as kernel;

use super::linear::Weight;
use super::{Op, Setting};
use crate::dispatch::reduce;

pub const OPS: &[Op] = &[Op {
    name: "adapted_row_norms",
    prepare: norms,
}];

fn norms(asked: &Asked<'_>, setting: &Setting<'_>) -> Result<Made> {
    let alpha = asked.attributes().number("alpha")?;
    let params = &asked.request.params;
    let weight = Weight::new(asked, setting, 0, 0)?;
    let ranges = match &params[0].layout {
        WeightLayout::Dense(_) => 1,
        WeightLayout::Packed(format) => format.segments.len(),
    };
    let (rows, cols) = weight.size();
    let rank = params[1].shape[0];
    asked.stored(1)?;
    asked.stored(2)?;
    let matrices = [
        Weight::new(asked, setting, 1, ranges)?,
        Weight::new(asked, setting, 2, ranges + 1)?,
    ];
    let of_a = rank as usize * cols;
    let elements = of_a + rows * rank as usize;
    reduce!(asked, asked.output(0).dtype, R => {
        let run = Made::new(move |call| {
            let (a, b) = call.workspace::<R>(elements).split_at_mut(of_a);
            for (matrix, into) in matrices.iter().zip([&mut *a, &mut *b]) {
                matrix.with::<R>(call, |matrix| param_value(call.services, matrix, into))?;
            }
            let norms = call.output::<R>(0);
            weight.with::<R>(call, |weight| {
                kernel::adapted_row_norms(call.services, weight, (a, b), alpha, norms);
            })
        });
        Ok(run.with_workspace(elements * size_of::<R>()))
    })
}
