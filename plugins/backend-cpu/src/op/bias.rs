//! `bias_backward`.

use espalier_host_device::{Asked, Made};
use espalier_interface::Result;
use espalier_kernels::bias as kernel;

use super::{Op, Setting};
use crate::dispatch::{compute, gradient};

pub const OPS: &[Op] = &[Op {
    name: "bias_backward",
    prepare,
}];

fn prepare(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Made> {
    let dtype = asked.output(0).dtype;
    compute!(asked, asked.input(0).dtype, E => gradient!(dtype, E, G => {
        Ok(Made::new(move |call| {
            kernel::bias_backward(call.services, call.input::<E>(0), call.output::<G>(0));
            Ok(())
        }))
    }))
}
