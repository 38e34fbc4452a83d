//! `bias_backward`.

use espalier_interface::Result;
use espalier_interface::graph::Dim;
use espalier_kernels::bias as kernel;
use espalier_kernels::element::Element;

use super::{Made, Op, Setting};
use crate::dispatch::compute;
use crate::request::Asked;

pub const OPS: &[Op] = &[Op {
    name: "bias_backward",
    prepare,
}];

fn prepare(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Made> {
    asked.check([1, 0, 1], &[])?;
    let dy = asked.input(0);
    let width = asked.width(dy, "dy")?;
    compute!(asked, dy.dtype, E => {
        type R = <E as Element>::Acc;
        asked.expect(asked.output(0), "dbias", &[Dim::Fixed(width as u64)], R::DTYPE)?;
        Ok(Made::new(move |call| {
            kernel::bias_backward(call.services, call.input::<E>(0), call.output::<R>(0));
            Ok(())
        }))
    })
}
