//! `param_value` and `param_value_backward`.

use espalier_host_device::{Asked, Made};
use espalier_interface::Result;
use espalier_kernels::arithmetic::accumulate;
use espalier_kernels::element::Element;
use espalier_kernels::param_value as kernel;

use super::linear::Weight;
use super::{Op, Setting};
use crate::dispatch::{compute, gradient};

pub const OPS: &[Op] = &[
    Op {
        name: "param_value",
        prepare: forward,
    },
    Op {
        name: "param_value_backward",
        prepare: backward,
    },
];

fn forward(asked: &Asked<'_>, setting: &Setting<'_>) -> Result<Made> {
    let param = Weight::new(asked, setting, 0, 0)?;
    compute!(asked, asked.output(0).dtype, E => {
        Ok(Made::new(move |call| {
            let out = call.output::<E>(0);
            param.with::<<E as Element>::Acc>(call, |param| kernel::param_value(call.services, param, out))
        }))
    })
}

fn backward(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Made> {
    let dtype = asked.output(0).dtype;
    compute!(asked, asked.input(0).dtype, E => gradient!(dtype, E, G => {
        Ok(Made::new(move |call| {
            accumulate(call.services, call.input::<E>(0), 1.0, call.output::<G>(0));
            Ok(())
        }))
    }))
}
