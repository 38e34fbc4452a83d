//! `swiglu` and `geglu_tanh` with their gradients.

use espalier_interface::Result;
use espalier_interface::op::{GELU_CUBE, GELU_SLOPE};

use super::rows::each;
use super::{Kernel, Op};
use crate::{Tensors, Unary};

pub fn ops<L: Tensors>() -> Vec<Op<L>> {
    vec![
        Op::new("swiglu", |_, _| Ok(forward(Gate::Silu))),
        Op::new("swiglu_backward", |_, _| Ok(backward(Gate::Silu))),
        Op::new("geglu_tanh", |_, _| Ok(forward(Gate::Gelu))),
        Op::new("geglu_tanh_backward", |_, _| Ok(backward(Gate::Gelu))),
    ]
}

/// The function of the gate, `g s` with `s = 1 / (1 + e^-z)`.
#[derive(Clone, Copy)]
pub(super) enum Gate {
    /// `z = g`.
    Silu,
    /// `z = 2 k g (1 + c g^2)`.
    Gelu,
}

impl Gate {
    /// `s` of a gate.
    pub(super) fn sigmoid<L: Tensors>(self, library: &L, gate: &L::Tensor) -> Result<L::Tensor> {
        match self {
            Gate::Silu => library.unary(Unary::Sigmoid, gate),
            Gate::Gelu => library.unary(Unary::Sigmoid, &bent(library, gate, GELU_CUBE)?),
        }
    }

    /// `g z'` of a gate.
    pub(super) fn slope<L: Tensors>(self, library: &L, gate: &L::Tensor) -> Result<L::Tensor> {
        match self {
            Gate::Silu => Ok(gate.clone()),
            Gate::Gelu => bent(library, gate, 3.0 * GELU_CUBE),
        }
    }
}

/// `2 k g (1 + c g^2)`.
fn bent<L: Tensors>(library: &L, gate: &L::Tensor, cube: f64) -> Result<L::Tensor> {
    let bend = library.affine(&library.unary(Unary::Square, gate)?, cube, 1.0)?;
    library.mul(&library.scaled(gate, GELU_SLOPE)?, &bend)
}

fn forward<L: Tensors>(form: Gate) -> Kernel<L> {
    each(move |library: &L, [gate, up]| {
        let sigmoid = form.sigmoid(library, &gate)?;
        Ok([library.mul(&library.mul(&gate, &sigmoid)?, &up)?])
    })
}

fn backward<L: Tensors>(form: Gate) -> Kernel<L> {
    each(move |library: &L, [dy, gate, up]| {
        let sigmoid = form.sigmoid(library, &gate)?;
        let dup = library.mul(&dy, &library.mul(&gate, &sigmoid)?)?;
        // dg = dy u s (1 + g z' (1 - s))
        let rest = library.affine(&sigmoid, -1.0, 1.0)?;
        let slope = library.mul(&form.slope(library, &gate)?, &rest)?;
        let slope = library.affine(&slope, 1.0, 1.0)?;
        let dgate = library.mul(&library.mul(&dy, &up)?, &sigmoid)?;
        Ok([library.mul(&dgate, &slope)?, dup])
    })
}
