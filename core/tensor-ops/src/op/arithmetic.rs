//! `add`, `mul`, `div` and `scale`.

use super::rows::each;
use super::{Op, Temporaries};
use crate::{Binary, Tensors};

pub fn ops<L: Tensors>() -> Vec<Op<L>> {
    vec![
        Op {
            temporaries: Temporaries::Parts(6),
            ..Op::new("add", |asked, _| {
                let alpha = asked.attributes().optional_number("alpha").unwrap_or(1.0);
                let kernel = each(move |library: &L, [a, b]| {
                    Ok([library.add(&a, &library.scaled(&b, alpha)?)?])
                });
                Ok(kernel.in_place_of(Some(0)))
            })
        },
        Op::new("mul", |_, _| {
            Ok(each(|library: &L, [a, b]| {
                Ok([library.binary(Binary::Mul, &a, &b)?])
            }))
        }),
        Op::new("div", |_, _| {
            Ok(each(|library: &L, [a, b]| {
                Ok([library.binary(Binary::Div, &a, &b)?])
            }))
        }),
        Op::new("scale", |asked, _| {
            let alpha = asked.attributes().number("alpha")?;
            let kernel = each(move |library: &L, [a]| Ok([library.scaled(&a, alpha)?]));
            Ok(kernel.in_place_of(Some(0)))
        }),
    ]
}
