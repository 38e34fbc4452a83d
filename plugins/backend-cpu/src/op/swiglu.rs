//! `swiglu` and `swiglu_backward`.

use espalier_interface::Result;
use espalier_kernels::swiglu as kernel;

use super::{Made, Op, Setting};
use crate::dispatch::compute;
use crate::request::Asked;

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
    asked.check([2, 0, 1], &[])?;
    let gate = asked.input(0);
    asked.expect_like(
        gate,
        &[(asked.input(1), "up"), (asked.output(0), "the output")],
    )?;
    compute!(asked, gate.dtype, E => {
        Ok(Made::new(move |call| {
            let (gate, up) = (call.input::<E>(0), call.input(1));
            kernel::swiglu(call.services, gate, up, call.output(0));
            Ok(())
        }))
    })
}

fn backward(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Made> {
    asked.check([3, 0, 2], &[])?;
    let dy = asked.input(0);
    let (gate, up) = ((asked.input(1), "gate"), (asked.input(2), "up"));
    let (dgate, dup) = ((asked.output(0), "dgate"), (asked.output(1), "dup"));
    asked.expect_like(dy, &[gate, up, dgate, dup])?;
    compute!(asked, dy.dtype, E => {
        Ok(Made::new(move |call| {
            let (dy, gate, up) = (call.input::<E>(0), call.input(1), call.input(2));
            let (dgate, dup) = (call.output(0), call.output(1));
            kernel::swiglu_backward(call.services, gate, up, dy, dgate, dup);
            Ok(())
        }))
    })
}
