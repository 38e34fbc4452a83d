//! `row_max`, `is_argmax`, `pick`, `one_hot` and `scale_trained`.

use espalier_host_device::{Asked, Made};
use espalier_interface::Result;
use espalier_kernels::rows as kernel;

use super::{Op, Setting};
use crate::dispatch::compute;

pub const OPS: &[Op] = &[
    Op {
        name: "row_max",
        prepare: row_max,
    },
    Op {
        name: "is_argmax",
        prepare: is_argmax,
    },
    Op {
        name: "pick",
        prepare: pick,
    },
    Op {
        name: "one_hot",
        prepare: one_hot,
    },
    Op {
        name: "scale_trained",
        prepare: scale_trained,
    },
];

fn row_max(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Made> {
    compute!(asked, asked.input(0).dtype, E => {
        Ok(Made::new(|call| {
            kernel::row_max::<E>(call.services, call.input(0), call.output(0));
            Ok(())
        }))
    })
}

fn is_argmax(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Made> {
    compute!(asked, asked.input(0).dtype, E => {
        Ok(Made::new(|call| {
            let (x, index) = (call.input::<E>(0), call.integers(1));
            kernel::is_argmax(call.services, x, index, call.output_integers(0));
            Ok(())
        }))
    })
}

fn pick(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Made> {
    compute!(asked, asked.input(0).dtype, E => {
        Ok(Made::new(|call| {
            let (x, index) = (call.input::<E>(0), call.integers(1));
            kernel::pick(call.services, x, index, call.output(0))
        }))
    })
}

fn one_hot(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Made> {
    compute!(asked, asked.output(0).dtype, E => {
        Ok(Made::new(|call| {
            kernel::one_hot::<E>(call.services, call.integers(0), call.output(0))
        }))
    })
}

fn scale_trained(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Made> {
    let places = asked.scalars(["factor"])?;
    compute!(asked, asked.input(0).dtype, E => {
        Ok(Made::new(move |call| {
            let ([factor], x) = (call.scalars_at(places), call.input::<E>(0));
            kernel::scale_trained(call.services, x, call.integers(1), factor, call.output(0));
            Ok(())
        }))
    })
}
