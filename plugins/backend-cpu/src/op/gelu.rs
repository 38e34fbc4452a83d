//! `gelu` and its gradient.

use espalier_host_device::{Asked, Made};
use espalier_interface::Result;
use espalier_interface::op::GeluForm;
use espalier_kernels::gelu as kernel;

use super::{Op, Setting};
use crate::dispatch::compute;

pub const OPS: &[Op] = &[
    Op {
        name: "gelu",
        prepare: forward,
    },
    Op {
        name: "gelu_backward",
        prepare: backward,
    },
];

fn forward(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Made> {
    let form = GeluForm::of(asked.attributes())?;
    compute!(asked, asked.input(0).dtype, E => {
        Ok(Made::new(move |call| {
            kernel::gelu::<E>(call.services, form, call.input(0), call.output(0));
            Ok(())
        }))
    })
}

fn backward(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Made> {
    let form = GeluForm::of(asked.attributes())?;
    compute!(asked, asked.input(0).dtype, E => {
        Ok(Made::new(move |call| {
            let (dy, x, dx) = (call.input(0), call.input(1), call.output(0));
            kernel::gelu_backward::<E>(call.services, form, x, dy, dx);
            Ok(())
        }))
    })
}
