//! Functions of one number: `exp`, `log`, `sigmoid`, `tanh`, `erf` and `rsqrt`.

use super::Op;
use super::rows::each;
use crate::{Binary, Tensors, Unary};

pub fn ops<L: Tensors>() -> Vec<Op<L>> {
    vec![
        Op::new("exp", |_, _| {
            Ok(each(|library: &L, [x]| {
                Ok([library.unary(Unary::Exp, &x)?])
            }))
        }),
        Op::new("log", |_, _| {
            Ok(each(|library: &L, [x]| {
                Ok([library.unary(Unary::Log, &x)?])
            }))
        }),
        Op::new("sigmoid", |_, _| {
            Ok(each(|library: &L, [x]| {
                Ok([library.unary(Unary::Sigmoid, &x)?])
            }))
        }),
        Op::new("tanh", |_, _| {
            Ok(each(|library: &L, [x]| {
                Ok([library.unary(Unary::Tanh, &x)?])
            }))
        }),
        Op::new("erf", |_, _| {
            Ok(each(|library: &L, [x]| {
                Ok([library.unary(Unary::Erf, &x)?])
            }))
        }),
        Op::new("rsqrt", |asked, _| {
            let number = |name| asked.attributes().optional_number(name);
            let alpha = number("alpha").unwrap_or(1.0);
            let beta = number("beta").unwrap_or(0.0);
            Ok(each(move |library: &L, [x]| {
                let root = library.unary(Unary::Sqrt, &library.affine(&x, alpha, beta)?)?;
                let one = library.full(1.0, &[1], library.dtype(&root))?;
                Ok([library.binary(Binary::Div, &one, &root)?])
            }))
        }),
    ]
}
