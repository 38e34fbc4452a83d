//! `rms_norm` and `rms_norm_offset` with their gradients.

use espalier_host_device::{Asked, Made};
use espalier_interface::Result;
use espalier_kernels::added::Added;
use espalier_kernels::element::Element;
use espalier_kernels::rms_norm::{self as kernel, Form, Offset, Rounded};
use half::bf16;

use super::{Op, Setting, added};
use crate::dispatch::{compute, gradient, stored};

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
    Op {
        name: "rms_norm_offset",
        prepare: forward,
    },
    Op {
        name: "rms_norm_offset_backward",
        prepare: backward,
    },
    Op {
        name: "rms_norm_offset_weight_backward",
        prepare: weight_backward,
    },
];

/// Version 2, with `added`.
pub const FUSED: &[Op] = &[Op {
    name: "rms_norm_backward",
    prepare: backward,
}];

/// Index of the input `added`, which version 1 does not have.
const ADDED: usize = 2;

/// A form of norms of every dtype that is computed in.
trait AnyForm: Form<f32> + Form<f64> + Form<bf16> + Send + 'static {}

impl AnyForm for Rounded {}
impl AnyForm for Offset {}

/// What is added to the weight; none for `rms_norm`.
fn offset(asked: &Asked<'_>) -> Option<f64> {
    asked.attributes().optional_number("offset")
}

fn forward(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Made> {
    match offset(asked) {
        Some(offset) => forward_as(asked, Offset(offset)),
        None => forward_as(asked, Rounded),
    }
}

fn backward(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Made> {
    match offset(asked) {
        Some(offset) => backward_as(asked, Offset(offset)),
        None => backward_as(asked, Rounded),
    }
}

fn weight_backward(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Made> {
    match offset(asked) {
        Some(offset) => weight_backward_as(asked, Offset(offset)),
        None => weight_backward_as(asked, Rounded),
    }
}

fn forward_as(asked: &Asked<'_>, form: impl AnyForm) -> Result<Made> {
    let (eps, weight) = (asked.attributes().number("eps")?, asked.stored(0)?);
    compute!(asked, asked.input(0).dtype, E => stored!(asked, weight, W => {
        Ok(Made::new(move |call| {
            let (x, weight) = (call.input::<E>(0), call.param::<W>(0));
            kernel::rms_norm(call.services, form, x, weight, eps, call.output(0));
            Ok(())
        }))
    }))
}

fn backward_as(asked: &Asked<'_>, form: impl AnyForm) -> Result<Made> {
    let (eps, weight) = (asked.attributes().number("eps")?, asked.stored(0)?);
    let has_added = asked.request.inputs.len() > ADDED;
    compute!(asked, asked.input(0).dtype, E => stored!(asked, weight, W => {
        let run = Made::new(move |call| {
            let (dy, x, weight) = (call.input::<E>(0), call.input(1), call.param::<W>(0));
            let added = if has_added { added(call, ADDED) } else { Added::Nothing };
            let (services, dx) = (call.services, call.output(0));
            kernel::rms_norm_backward(services, form, x, weight, dy, eps, added, dx);
            Ok(())
        });
        Ok(if has_added { run.in_place_of(ADDED) } else { run })
    }))
}

fn weight_backward_as(asked: &Asked<'_>, form: impl AnyForm) -> Result<Made> {
    let (dy, eps) = (asked.input(0), asked.attributes().number("eps")?);
    let groups = asked.columns(dy) / asked.elements(asked.output(0)).max(1);
    let most = asked.request.max_tokens as usize * groups;
    compute!(asked, dy.dtype, E => gradient!(asked.output(0).dtype, E, G => {
        let run = Made::new(move |call| {
            let (dy, x) = (call.input::<E>(0), call.input(1));
            let inverse = call.workspace(call.tokens * groups);
            let dweight = call.output::<G>(0);
            kernel::rms_norm_backward_weight(call.services, form, x, dy, eps, inverse, dweight);
            Ok(())
        });
        Ok(run.with_workspace(most * size_of::<<E as Element>::Acc>()))
    }))
}
