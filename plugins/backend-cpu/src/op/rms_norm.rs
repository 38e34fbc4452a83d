//! `rms_norm`, `rms_norm_backward` and `rms_norm_weight_backward`.

use espalier_interface::graph::Dim;
use espalier_interface::{DType, Operand, Result};
use espalier_kernels::element::Element;
use espalier_kernels::rms_norm as kernel;

use super::{Made, Op, Setting};
use crate::dispatch::{compute, stored};
use crate::request::Asked;

pub const OPS: &[Op] = &[
    Op {
        name: "rms_norm",
        prepare: forward,
    },
    Op {
        name: "rms_norm_backward",
        prepare: backward,
    },
    Op {
        name: "rms_norm_weight_backward",
        prepare: weight_backward,
    },
];

fn forward(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Made> {
    asked.check([1, 1, 1], &["eps"])?;
    let (x, eps) = (asked.input(0), asked.attributes().number("eps")?);
    asked.expect_like(x, &[(asked.output(0), "the output")])?;
    let weight = weight(asked, x)?;
    compute!(asked, x.dtype, E => stored!(asked, weight, W => {
        Ok(Made::new(move |call| {
            let (x, weight) = (call.input::<E>(0), call.param::<W>(0));
            kernel::rms_norm(call.services, x, weight, eps, call.output(0));
            Ok(())
        }))
    }))
}

fn backward(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Made> {
    asked.check([2, 1, 1], &["eps"])?;
    let (dy, eps) = (asked.input(0), asked.attributes().number("eps")?);
    asked.expect_like(dy, &[(asked.input(1), "x"), (asked.output(0), "dx")])?;
    let weight = weight(asked, dy)?;
    compute!(asked, dy.dtype, E => stored!(asked, weight, W => {
        Ok(Made::new(move |call| {
            let (dy, x, weight) = (call.input::<E>(0), call.input(1), call.param::<W>(0));
            kernel::rms_norm_backward(call.services, x, weight, dy, eps, call.output(0));
            Ok(())
        }))
    }))
}

fn weight_backward(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Made> {
    asked.check([2, 0, 1], &["eps"])?;
    let (dy, eps) = (asked.input(0), asked.attributes().number("eps")?);
    asked.expect_like(dy, &[(asked.input(1), "x")])?;
    let gradient = asked.output(0);
    let width = match gradient.shape[..] {
        [Dim::Fixed(group)] => group,
        _ => 0,
    };
    let group = group(asked, dy, "dweight", width)?;
    let groups = asked.width(dy, "dy")? / group as usize;
    let most = asked.request.max_tokens as usize * groups;
    compute!(asked, dy.dtype, E => {
        type R = <E as Element>::Acc;
        asked.expect(gradient, "dweight", &[Dim::Fixed(group)], R::DTYPE)?;
        let run = Made::new(move |call| {
            let (dy, x) = (call.input::<E>(0), call.input(1));
            let inverse = call.workspace(call.tokens * groups);
            let dweight = call.output::<R>(0);
            kernel::rms_norm_backward_weight(call.services, x, dy, eps, inverse, dweight);
            Ok(())
        });
        Ok(run.with_workspace(most * size_of::<R>()))
    })
}

/// The stored dtype of the weight, whose elements are a group of the columns of `x`.
fn weight(asked: &Asked<'_>, x: &Operand) -> Result<DType> {
    let elements = asked.request.params[0].shape.iter().product();
    let group = group(asked, x, "the weight", elements)?;
    asked.dense(0, "the weight", &[group])
}

/// `elements` of `name`, checked to divide the columns of `x`.
fn group(asked: &Asked<'_>, x: &Operand, name: &str, elements: u64) -> Result<u64> {
    let width = asked.width(x, "x")? as u64;
    match elements {
        0 => Err(asked.invalid(format!("{name} has no elements"))),
        _ if width.is_multiple_of(elements) => Ok(elements),
        _ => Err(asked.invalid(format!(
            "{name} has {elements} elements, expected a divisor of the {width} columns"
        ))),
    }
}
