//! `scale_channels` and `scale_channels_weight_backward`.

use espalier_interface::{DType, Operand, Result};
use espalier_kernels::element::Element;
use espalier_kernels::scale_channels as kernel;

use super::{Made, Op, Setting};
use crate::dispatch::{compute, stored};
use crate::request::Asked;

pub const OPS: &[Op] = &[
    Op {
        name: "scale_channels",
        prepare: forward,
    },
    Op {
        name: "scale_channels_weight_backward",
        prepare: weight_backward,
    },
];

fn forward(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Made> {
    asked.check([1, 1, 1], &[])?;
    let x = asked.input(0);
    asked.expect_like(x, &[(asked.output(0), "the output")])?;
    let weight = weight(asked, x)?;
    compute!(asked, x.dtype, E => stored!(asked, weight, W => {
        Ok(Made::new(move |call| {
            let (x, weight) = (call.input::<E>(0), call.param::<W>(0));
            kernel::scale_channels(call.services, x, weight, call.output(0));
            Ok(())
        }))
    }))
}

fn weight_backward(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Made> {
    asked.check([2, 0, 1], &[])?;
    let (dy, gradient) = (asked.input(0), asked.output(0));
    asked.expect_like(dy, &[(asked.input(1), "x")])?;
    expect_channels(asked, dy, "dweight", asked.fixed(gradient, "dweight")?)?;
    compute!(asked, dy.dtype, E => {
        type R = <E as Element>::Acc;
        asked.expect(gradient, "dweight", &gradient.shape, R::DTYPE)?;
        Ok(Made::new(move |call| {
            let (dy, x) = (call.input::<E>(0), call.input(1));
            kernel::scale_channels_weight_backward(call.services, dy, x, call.output::<R>(0));
            Ok(())
        }))
    })
}

/// The stored dtype of the weight: a number for each channel of `x`, in any shape.
fn weight(asked: &Asked<'_>, x: &Operand) -> Result<DType> {
    let param = &asked.request.params[0];
    let elements: u64 = param.shape.iter().product();
    expect_channels(asked, x, "the weight", elements as usize)?;
    asked.dense(0, "the weight", &param.shape)
}

fn expect_channels(asked: &Asked<'_>, x: &Operand, name: &str, elements: usize) -> Result<()> {
    let width = asked.width(x, "x")?;
    if elements == width {
        Ok(())
    } else {
        Err(asked.invalid(format!(
            "{name} has {elements} elements, expected one for each of {width} channels"
        )))
    }
}
