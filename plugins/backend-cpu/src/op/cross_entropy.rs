//! `cross_entropy` and `cross_entropy_backward`.

use espalier_interface::graph::Dim;
use espalier_interface::{DType, Result};
use espalier_kernels::cross_entropy::{self as kernel, Losses};
use espalier_kernels::element::Element;

use super::{Made, Op, Setting};
use crate::dispatch::compute;
use crate::request::Asked;

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

const ROWS: &[Dim] = &[Dim::Tokens];

fn forward(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Made> {
    asked.check([2, 0, 3], &[])?;
    let logits = asked.input(0);
    asked.width(logits, "logits")?;
    asked.expect(asked.input(1), "labels", ROWS, DType::I32)?;
    asked.expect(asked.output(2), "correct", ROWS, DType::I32)?;
    compute!(asked, logits.dtype, E => {
        type R = <E as Element>::Acc;
        asked.expect(asked.output(0), "loss", ROWS, R::DTYPE)?;
        asked.expect(asked.output(1), "lse", ROWS, R::DTYPE)?;
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
    asked.check([3, 0, 1], &[])?;
    let logits = asked.input(0);
    asked.width(logits, "logits")?;
    asked.expect(asked.input(1), "labels", ROWS, DType::I32)?;
    asked.expect_like(logits, &[(asked.output(0), "dlogits")])?;
    compute!(asked, logits.dtype, E => {
        type R = <E as Element>::Acc;
        asked.expect(asked.input(2), "lse", ROWS, R::DTYPE)?;
        let run = Made::new(move |call| {
            let (logits, labels, lse) =
                (call.input::<E>(0), call.integers(1), call.input::<R>(2));
            let (factor, dlogits) = (call.scalars[0], call.output(0));
            kernel::cross_entropy_backward(call.services, logits, labels, lse, factor, dlogits);
            Ok(())
        });
        Ok(run.with_scalars(1))
    })
}
