//! `swiglu` and `swiglu_backward`.

use espalier_host_device::{Asked, Made};
use espalier_interface::Result;
use espalier_kernels::swiglu as kernel;

use super::{Op, Setting};
use crate::dispatch::compute;

pub const OPS: &[Op] = &[
    Op {
        name: "swiglu",
        prepare: forward,
    },
    Op {
        name: "swiglu_backward",
        prepare: backward,
    },
];

fn forward(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Made> {
    compute!(asked, asked.input(0).dtype, E => {
        Ok(Made::new(move |call| {
            let (gate, up) = (call.input::<E>(0), call.input(1));
            kernel::swiglu(call.services, gate, up, call.output(0));
            Ok(())
        }))
    })
}

fn backward(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Made> {
    compute!(asked, asked.input(0).dtype, E => {
        Ok(Made::new(move |call| {
            let (dy, gate, up) = (call.input::<E>(0), call.input(1), call.input(2));
            let (dgate, dup) = (call.output(0), call.output(1));
            kernel::swiglu_backward(call.services, gate, up, dy, dgate, dup);
            Ok(())
        }))
    })
}
