//! `adamw`: with state in the dtype of sums or in bf16, and params rounded to nearest or
//! stochastically.

use espalier_host_device::{Asked, Call, Made};
use espalier_interface::op::ADAMW_SCALARS;
use espalier_interface::stochastic::{RandomBits, SCALARS};
use espalier_interface::{DType, Result};
use espalier_kernels::adamw::{self as kernel, Adamw};
use espalier_kernels::stochastic::{Stochastic, ToNearest};
use half::bf16;

use super::{Op, Setting};
use crate::dispatch::{compute, gradient};

pub const OPS: &[Op] = &[Op {
    name: "adamw",
    prepare: of_sums,
}];

/// Version 2: gradients and moments of any dtype.
pub const NARROW: &[Op] = &[Op {
    name: "adamw",
    prepare: nearest,
}];

/// Version 3: params of bf16 that are rounded stochastically.
pub const STOCHASTIC: &[Op] = &[Op {
    name: "adamw",
    prepare: stochastic,
}];

fn of_sums(asked: &Asked<'_>, setting: &Setting<'_>) -> Result<Made> {
    expect_sums(asked)?;
    nearest(asked, setting)
}

fn nearest(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Made> {
    let scalars = StepScalars::of(asked)?;
    let state = state_dtype(asked)?;
    compute!(asked, asked.input(0).dtype, G => compute!(asked, asked.output(0).dtype, P => gradient!(state, G, M => {
        Ok(Made::new(move |call| {
            let (params, m, v) = (call.output::<P>(0), call.output::<M>(1), call.output(2));
            let (config, grads) = (scalars.of_launch(call), call.input::<G>(0));
            kernel::adamw(call.services, config, ToNearest, grads, params, m, v);
            Ok(())
        }))
    })))
}

fn stochastic(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Made> {
    let (scalars, random) = (StepScalars::of(asked)?, RandomScalars::of(asked)?);
    let state = state_dtype(asked)?;
    compute!(asked, asked.input(0).dtype, G => gradient!(state, G, M => {
        Ok(Made::new(move |call| {
            let (params, m, v) = (call.output::<bf16>(0), call.output::<M>(1), call.output(2));
            let (config, grads) = (scalars.of_launch(call), call.input::<G>(0));
            let rounding = random.of_launch(call);
            kernel::adamw(call.services, config, rounding, grads, params, m, v);
            Ok(())
        }))
    }))
}

/// Refuses gradients that are not in the dtype of sums.
pub(super) fn expect_sums(asked: &Asked<'_>) -> Result<()> {
    match asked.input(0).dtype {
        DType::F32 | DType::F64 => Ok(()),
        other => Err(asked.bad_dtype(other, "f32 or f64")),
    }
}

/// The dtype of state, the same of each tensor; that of sums without state.
///
/// # Errors
/// Another dtype than bf16 and that of sums, or two of them.
pub(super) fn state_dtype(asked: &Asked<'_>) -> Result<DType> {
    let sums = match asked.input(0).dtype {
        DType::F64 => DType::F64,
        _ => DType::F32,
    };
    let state = || asked.request.outputs[1..].iter().map(|tensor| tensor.dtype);
    let first = state().next().unwrap_or(sums);
    let known = [sums, DType::BF16];
    match state().find(|dtype| !known.contains(dtype) || *dtype != first) {
        None => Ok(first),
        Some(other) => Err(asked.bad_dtype(other, "bf16 or that of sums, the same for all state")),
    }
}

/// Places of the scalars of a step of AdamW.
#[derive(Clone, Copy)]
pub(super) struct StepScalars([usize; 7]);

impl StepScalars {
    pub fn of(asked: &Asked<'_>) -> Result<Self> {
        Ok(StepScalars(asked.scalars(ADAMW_SCALARS)?))
    }

    pub fn of_launch(self, call: &Call<'_>) -> Adamw {
        let [learning_rate, beta1, beta2, eps, weight_decay, step, factor] =
            call.scalars_at(self.0);
        Adamw {
            learning_rate,
            betas: [beta1, beta2],
            eps,
            weight_decay,
            step: step as u64,
            gradient_scale: factor,
        }
    }
}

/// Places of the scalars that random bits depend on.
#[derive(Clone, Copy)]
pub(super) struct RandomScalars([usize; 6]);

impl RandomScalars {
    pub fn of(asked: &Asked<'_>) -> Result<Self> {
        Ok(RandomScalars(asked.scalars(SCALARS)?))
    }

    pub fn of_launch(self, call: &Call<'_>) -> Stochastic {
        let (bits, first) = RandomBits::of_scalars(call.scalars_at(self.0));
        Stochastic { bits, first }
    }
}
