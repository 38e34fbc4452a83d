//! `add`, `mul`, `div` and `scale`; `add` and `scale` also in place, over their first input.

use espalier_host_device::{Asked, Made};
use espalier_interface::Result;
use espalier_kernels::arithmetic as kernel;

use super::{Op, Setting};
use crate::dispatch::compute;

pub const OPS: &[Op] = &[
    Op {
        name: "add",
        prepare: add,
    },
    Op {
        name: "mul",
        prepare: mul,
    },
    Op {
        name: "div",
        prepare: div,
    },
    Op {
        name: "scale",
        prepare: scale,
    },
];

fn add(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Made> {
    let alpha = asked.attributes().optional_number("alpha").unwrap_or(1.0);
    compute!(asked, asked.input(0).dtype, E => {
        let run = Made::new(move |call| {
            let (b, y) = (call.input::<E>(1), call.output(0));
            if call.in_place() { kernel::accumulate::<E, E>(call.services, b, alpha, y) } else { kernel::add(call.services, call.input::<E>(0), b, alpha, y) }
            Ok(())
        });
        Ok(run.in_place_of(0))
    })
}

fn mul(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Made> {
    compute!(asked, asked.input(0).dtype, E => {
        Ok(Made::new(move |call| {
            let (a, b) = (call.input::<E>(0), call.input(1));
            kernel::mul(call.services, a, b, call.output(0));
            Ok(())
        }))
    })
}

fn div(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Made> {
    compute!(asked, asked.input(0).dtype, E => {
        Ok(Made::new(move |call| {
            let (a, b) = (call.input::<E>(0), call.input(1));
            kernel::div(call.services, a, b, call.output(0));
            Ok(())
        }))
    })
}

fn scale(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Made> {
    let alpha = asked.attributes().number("alpha")?;
    compute!(asked, asked.input(0).dtype, E => {
        let run = Made::new(move |call| {
            let y = call.output::<E>(0);
            if call.in_place() { kernel::scale_in_place(call.services, alpha, y) } else { kernel::scale(call.services, call.input(0), alpha, y) }
            Ok(())
        });
        Ok(run.in_place_of(0))
    })
}
