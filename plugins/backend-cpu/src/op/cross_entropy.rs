//! `cross_entropy` and `cross_entropy_backward`.

use espalier_host_device::{Asked, Made};
use espalier_interface::Result;
use espalier_kernels::cross_entropy::{self as kernel, Losses};
use espalier_kernels::element::Element;

use super::{Op, Setting};
use crate::dispatch::compute;

pub const OPS: &[Op] = &[
    Op {
        name: "cross_entropy",
        prepare: forward,
    },
    Op {
        name: "cross_entropy_backward",
        prepare: backward,
    },
];

/// Version 2 of the gradient: it may lie in the memory of the logits.
pub const FUSED: &[Op] = &[Op {
    name: "cross_entropy_backward",
    prepare: |asked, setting| Ok(backward(asked, setting)?.in_place_of(0)),
}];

fn forward(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Made> {
    compute!(asked, asked.input(0).dtype, E => {
        Ok(Made::new(move |call| {
            let (logits, labels) = (call.input::<E>(0), call.integers(1));
            let out = Losses {
                loss: call.output(0),
                log_sum_exp: call.output(1),
                correct: call.output_integers(2),
            };
            kernel::cross_entropy(call.services, logits, labels, out)
        }))
    })
}

fn backward(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Made> {
    let places = asked.scalars(["factor"])?;
    compute!(asked, asked.input(0).dtype, E => {
        type R = <E as Element>::Acc;
        let run = Made::new(move |call| {
            let logits = (!call.in_place()).then(|| call.input::<E>(0));
            let (labels, lse) = (call.integers(1), call.input::<R>(2));
            let ([factor], dlogits) = (call.scalars_at(places), call.output(0));
            kernel::cross_entropy_backward(call.services, logits, labels, lse, factor, dlogits);
            Ok(())
        });
        Ok(run)
    })
}
