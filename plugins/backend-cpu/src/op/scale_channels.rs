//! `scale_channels` and `scale_channels_weight_backward`; `scale_by` and `scale_by_backward`, whose
//! numbers are a value.

use espalier_host_device::{Asked, Made};
use espalier_interface::Result;
use espalier_kernels::element::Element;
use espalier_kernels::scale_channels as kernel;

use super::{Op, Setting};
use crate::dispatch::{compute, gradient, stored};

pub const OPS: &[Op] = &[
    Op {
        name: "scale_channels",
        prepare: forward,
    },
    Op {
        name: "scale_channels_weight_backward",
        prepare: weight_backward,
    },
    Op {
        name: "scale_by",
        prepare: by_value,
    },
    Op {
        name: "scale_by_backward",
        prepare: value_backward,
    },
];

fn forward(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Made> {
    let weight = asked.stored(0)?;
    compute!(asked, asked.input(0).dtype, E => stored!(asked, weight, W => {
        Ok(Made::new(move |call| {
            let (x, weight) = (call.input::<E>(0), call.param::<W>(0));
            kernel::scale_channels(call.services, x, weight, call.output(0));
            Ok(())
        }))
    }))
}

fn weight_backward(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Made> {
    let dtype = asked.output(0).dtype;
    compute!(asked, asked.input(0).dtype, E => gradient!(dtype, E, G => {
        Ok(Made::new(move |call| {
            let (dy, x) = (call.input::<E>(0), call.input(1));
            kernel::scale_channels_weight_backward(call.services, dy, x, call.output::<G>(0));
            Ok(())
        }))
    }))
}

fn by_value(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Made> {
    compute!(asked, asked.input(0).dtype, E => {
        type R = <E as Element>::Acc;
        Ok(Made::new(move |call| {
            let (x, factors) = (call.input::<E>(0), call.input::<R>(1));
            kernel::scale_channels(call.services, x, factors, call.output(0));
            Ok(())
        }))
    })
}

fn value_backward(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Made> {
    compute!(asked, asked.input(0).dtype, E => {
        type R = <E as Element>::Acc;
        Ok(Made::new(move |call| {
            let (dy, x) = (call.input::<E>(0), call.input(1));
            let dfactors = call.output::<R>(0);
            dfactors.fill(0.0);
            kernel::scale_channels_weight_backward(call.services, dy, x, dfactors);
            Ok(())
        }))
    })
}
