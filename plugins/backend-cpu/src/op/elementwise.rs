//! `exp`, `log`, `sigmoid` and `rsqrt`.

use espalier_interface::Result;
use espalier_kernels::elementwise as kernel;

use super::{Made, Op, Setting};
use crate::dispatch::compute;
use crate::request::Asked;

pub const OPS: &[Op] = &[
    Op {
        name: "exp",
        prepare: exp,
    },
    Op {
        name: "log",
        prepare: log,
    },
    Op {
        name: "sigmoid",
        prepare: sigmoid,
    },
    Op {
        name: "rsqrt",
        prepare: rsqrt,
    },
];

fn exp(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Made> {
    compute!(asked, asked.input(0).dtype, E => {
        Ok(Made::new(|call| {
            kernel::exp::<E>(call.services, call.input(0), call.output(0));
            Ok(())
        }))
    })
}

fn log(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Made> {
    compute!(asked, asked.input(0).dtype, E => {
        Ok(Made::new(|call| {
            kernel::log::<E>(call.services, call.input(0), call.output(0));
            Ok(())
        }))
    })
}

fn sigmoid(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Made> {
    compute!(asked, asked.input(0).dtype, E => {
        Ok(Made::new(|call| {
            kernel::sigmoid::<E>(call.services, call.input(0), call.output(0));
            Ok(())
        }))
    })
}

fn rsqrt(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Made> {
    let attributes = asked.attributes();
    let alpha = attributes.optional_number("alpha").unwrap_or(1.0);
    let beta = attributes.optional_number("beta").unwrap_or(0.0);
    compute!(asked, asked.input(0).dtype, E => {
        Ok(Made::new(move |call| {
            kernel::rsqrt::<E>(call.services, call.input(0), [alpha, beta], call.output(0));
            Ok(())
        }))
    })
}
