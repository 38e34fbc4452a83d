//! `adamw8bit`; its versions are as those of `adamw`.

use espalier_host_device::{Asked, Call, Made, Number};
use espalier_interface::Result;
use espalier_kernels::adamw8bit::{self as kernel, Coded};
use espalier_kernels::element::Element;
use espalier_kernels::stochastic::ToNearest;
use half::bf16;

use super::adamw::{RandomScalars, StepScalars, expect_sums};
use super::{Op, Setting};
use crate::dispatch::compute;

pub const OPS: &[Op] = &[Op {
    name: "adamw8bit",
    prepare: of_sums,
}];

/// Version 2: gradients of any dtype.
pub const NARROW: &[Op] = &[Op {
    name: "adamw8bit",
    prepare: nearest,
}];

/// Version 3: params of bf16 that are rounded stochastically.
pub const STOCHASTIC: &[Op] = &[Op {
    name: "adamw8bit",
    prepare: stochastic,
}];

fn of_sums(asked: &Asked<'_>, setting: &Setting<'_>) -> Result<Made> {
    expect_sums(asked)?;
    nearest(asked, setting)
}

fn nearest(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Made> {
    let scalars = StepScalars::of(asked)?;
    compute!(asked, asked.input(0).dtype, G => compute!(asked, asked.output(0).dtype, P => {
        check_absmax::<G>(asked)?;
        Ok(Made::new(move |call| {
            let (config, [first, second]) = (scalars.of_launch(call), moments::<G>(call));
            let (grads, params) = (call.input::<G>(0), call.output::<P>(0));
            kernel::adamw8bit(call.services, config, ToNearest, grads, params, first, second);
            Ok(())
        }))
    }))
}

fn stochastic(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Made> {
    let (scalars, random) = (StepScalars::of(asked)?, RandomScalars::of(asked)?);
    compute!(asked, asked.input(0).dtype, G => {
        check_absmax::<G>(asked)?;
        Ok(Made::new(move |call| {
            let (config, [first, second]) = (scalars.of_launch(call), moments::<G>(call));
            let (grads, params) = (call.input::<G>(0), call.output::<bf16>(0));
            let rounding = random.of_launch(call);
            kernel::adamw8bit(call.services, config, rounding, grads, params, first, second);
            Ok(())
        }))
    })
}

/// Refuses absmax that are not in the dtype of sums.
fn check_absmax<G: Element>(asked: &Asked<'_>) -> Result<()> {
    let expected = <G::Acc as Element>::DTYPE;
    match [2, 4].map(|index| asked.output(index).dtype) {
        [first, second] if first == expected && second == expected => Ok(()),
        [first, second] => {
            let other = if first == expected { second } else { first };
            Err(asked.bad_dtype(other, &expected.to_string()))
        }
    }
}

/// The moments of a launch.
fn moments<'c, G: Element>(call: &'c Call<'_>) -> [Coded<'c, G::Acc>; 2]
where
    G::Acc: Number,
{
    [1, 3].map(|at| Coded {
        codes: call.output_bytes(at),
        absmax: call.output::<G::Acc>(at + 1),
    })
}
