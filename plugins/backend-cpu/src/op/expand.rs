//! `expand`, `contract` and `broadcast_param`.

use espalier_host_device::{Asked, Made};
use espalier_interface::Result;
use espalier_kernels::expand as kernel;

use super::{Op, Setting};
use crate::dispatch::{compute, stored};

pub const OPS: &[Op] = &[
    Op {
        name: "expand",
        prepare: expand,
    },
    Op {
        name: "contract",
        prepare: contract,
    },
    Op {
        name: "broadcast_param",
        prepare: broadcast_param,
    },
];

/// How often each column is repeated, and the row tiled.
fn copies(asked: &Asked<'_>) -> [usize; 2] {
    ["repeat", "tile"].map(|name| asked.attributes().count(name).unwrap_or(1))
}

fn expand(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Made> {
    let (copies, width) = (copies(asked), asked.columns(asked.output(0)));
    compute!(asked, asked.input(0).dtype, E => {
        Ok(Made::new(move |call| {
            kernel::expand::<E>(call.services, call.input(0), copies, width, call.output(0));
            Ok(())
        }))
    })
}

fn contract(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Made> {
    let (copies, width) = (copies(asked), asked.columns(asked.input(0)));
    compute!(asked, asked.input(0).dtype, E => {
        Ok(Made::new(move |call| {
            kernel::contract::<E>(call.services, call.input(0), copies, width, call.output(0));
            Ok(())
        }))
    })
}

fn broadcast_param(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Made> {
    let weight = asked.stored(0)?;
    compute!(asked, asked.output(0).dtype, E => stored!(asked, weight, W => {
        Ok(Made::new(|call| {
            kernel::broadcast_param::<E, W>(call.services, call.param(0), call.output(0));
            Ok(())
        }))
    }))
}
