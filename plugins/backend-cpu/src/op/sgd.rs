//! `sgd`: with a momentum buffer, or without momentum; its versions are as those of `adamw`.

use espalier_host_device::{Asked, Call, Made};
use espalier_interface::{PluginError, Result};
use espalier_kernels::sgd::{self as kernel, Sgd};
use espalier_kernels::stochastic::ToNearest;
use half::bf16;

use super::adamw::{RandomScalars, expect_sums, state_dtype};
use super::{Op, Setting};
use crate::dispatch::{compute, gradient};

pub const OPS: &[Op] = &[Op {
    name: "sgd",
    prepare: of_sums,
}];

/// Version 2: gradients and buffer of any dtype.
pub const NARROW: &[Op] = &[Op {
    name: "sgd",
    prepare: nearest,
}];

/// Version 3: params of bf16 that are rounded stochastically.
pub const STOCHASTIC: &[Op] = &[Op {
    name: "sgd",
    prepare: stochastic,
}];

fn of_sums(asked: &Asked<'_>, setting: &Setting<'_>) -> Result<Made> {
    expect_sums(asked)?;
    nearest(asked, setting)
}

fn nearest(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Made> {
    let scalars = StepScalars::of(asked)?;
    let (state, has_buffer) = (state_dtype(asked)?, has_buffer(asked));
    compute!(asked, asked.input(0).dtype, G => compute!(asked, asked.output(0).dtype, P => gradient!(state, G, M => {
        Ok(Made::new(move |call| {
            let config = scalars.of_launch(call, has_buffer)?;
            let (grads, params) = (call.input::<G>(0), call.output::<P>(0));
            let buffer = has_buffer.then(|| call.output::<M>(1));
            kernel::sgd(call.services, config, ToNearest, grads, params, buffer);
            Ok(())
        }))
    })))
}

fn stochastic(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Made> {
    let (scalars, random) = (StepScalars::of(asked)?, RandomScalars::of(asked)?);
    let (state, has_buffer) = (state_dtype(asked)?, has_buffer(asked));
    compute!(asked, asked.input(0).dtype, G => gradient!(state, G, M => {
        Ok(Made::new(move |call| {
            let config = scalars.of_launch(call, has_buffer)?;
            let (grads, params) = (call.input::<G>(0), call.output::<bf16>(0));
            let buffer = has_buffer.then(|| call.output::<M>(1));
            let rounding = random.of_launch(call);
            kernel::sgd(call.services, config, rounding, grads, params, buffer);
            Ok(())
        }))
    }))
}

fn has_buffer(asked: &Asked<'_>) -> bool {
    asked.request.outputs.len() == 2
}

/// Places of the scalars of a step.
#[derive(Clone, Copy)]
struct StepScalars([usize; 5]);

impl StepScalars {
    fn of(asked: &Asked<'_>) -> Result<Self> {
        Ok(StepScalars(asked.scalars([
            "learning_rate",
            "momentum",
            "nesterov",
            "weight_decay",
            "factor",
        ])?))
    }

    /// # Errors
    /// Momentum without a buffer.
    fn of_launch(self, call: &Call<'_>, has_buffer: bool) -> Result<Sgd> {
        let [learning_rate, momentum, nesterov, weight_decay, factor] = call.scalars_at(self.0);
        if !has_buffer && momentum != 0.0 {
            let what = format!("op `sgd`: momentum {momentum} without a momentum buffer");
            return Err(PluginError::invalid(what));
        }
        Ok(Sgd {
            learning_rate,
            momentum,
            nesterov: nesterov != 0.0,
            weight_decay,
            gradient_scale: factor,
        })
    }
}
