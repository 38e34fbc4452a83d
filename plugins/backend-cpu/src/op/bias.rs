//! `bias_backward`.

use espalier_host_device::{Asked, Made};
use espalier_interface::Result;
use espalier_kernels::bias as kernel;
use espalier_kernels::element::Element;

use super::{Op, Setting};
use crate::dispatch::compute;

pub const OPS: &[Op] = &[Op {
    name: "bias_backward",
    prepare,
}];

fn prepare(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Made> {
    compute!(asked, asked.input(0).dtype, E => {
        type R = <E as Element>::Acc;
        Ok(Made::new(move |call| {
            kernel::bias_backward(call.services, call.input::<E>(0), call.output::<R>(0));
            Ok(())
        }))
    })
}
