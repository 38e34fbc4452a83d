//! `swiglu` and `geglu_tanh` with their gradients.

use espalier_host_device::{Asked, Made};
use espalier_interface::Result;
use espalier_kernels::swiglu as kernel;

use super::Op;
use crate::dispatch::compute;

pub const OPS: &[Op] = &[
    Op {
        name: "swiglu",
        prepare: |asked, _| forward(asked, Gate::Silu),
    },
    Op {
        name: "swiglu_backward",
        prepare: |asked, _| backward(asked, Gate::Silu),
    },
    Op {
        name: "geglu_tanh",
        prepare: |asked, _| forward(asked, Gate::Gelu),
    },
    Op {
        name: "geglu_tanh_backward",
        prepare: |asked, _| backward(asked, Gate::Gelu),
    },
];

/// The function of the gate.
#[derive(Clone, Copy)]
enum Gate {
    Silu,
    Gelu,
}

fn forward(asked: &Asked<'_>, function: Gate) -> Result<Made> {
    compute!(asked, asked.input(0).dtype, E => {
        let kernel = match function {
            Gate::Silu => kernel::swiglu::<E>,
            Gate::Gelu => kernel::geglu_tanh::<E>,
        };
        Ok(Made::new(move |call| {
            let (gate, up) = (call.input(0), call.input(1));
            kernel(call.services, gate, up, call.output(0));
            Ok(())
        }))
    })
}

fn backward(asked: &Asked<'_>, function: Gate) -> Result<Made> {
    compute!(asked, asked.input(0).dtype, E => {
        let kernel = match function {
            Gate::Silu => kernel::swiglu_backward::<E>,
            Gate::Gelu => kernel::geglu_tanh_backward::<E>,
        };
        Ok(Made::new(move |call| {
            let (dy, gate, up) = (call.input(0), call.input(1), call.input(2));
            let (dgate, dup) = (call.output(0), call.output(1));
            kernel(call.services, gate, up, dy, dgate, dup);
            Ok(())
        }))
    })
}
