//! `swiglu` and `swiglu_backward`.

use super::Op;
use super::rows::each;
use crate::{Tensors, Unary};

pub fn ops<L: Tensors>() -> Vec<Op<L>> {
    vec![
        Op::new("swiglu", |_, _| {
            Ok(each(|library: &L, [gate, up]| {
                let sigmoid = library.unary(Unary::Sigmoid, &gate)?;
                Ok([library.mul(&library.mul(&gate, &sigmoid)?, &up)?])
            }))
        }),
        Op::new("swiglu_backward", |_, _| {
            Ok(each(|library: &L, [dy, gate, up]| {
                let sigmoid = library.unary(Unary::Sigmoid, &gate)?;
                let dup = library.mul(&dy, &library.mul(&gate, &sigmoid)?)?;
                // dg = dy u s (1 + g (1 - s))
                let rest = library.affine(&sigmoid, -1.0, 1.0)?;
                let slope = library.affine(&library.mul(&gate, &rest)?, 1.0, 1.0)?;
                let dsilu = library.mul(&library.mul(&dy, &up)?, &sigmoid)?;
                Ok([library.mul(&dsilu, &slope)?, dup])
            }))
        }),
    ]
}
