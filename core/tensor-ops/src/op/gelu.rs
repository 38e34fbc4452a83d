//! `gelu` and its gradient.

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};

use espalier_host_device::Asked;
use espalier_interface::Result;
use espalier_interface::op::GeluForm;

use super::rows::each;
use super::swiglu::Gate;
use super::{Kernel, Op};
use crate::{Tensors, Unary};

pub fn ops<L: Tensors>() -> Vec<Op<L>> {
    vec![
        Op::new("gelu", |asked, _| forward(asked)),
        Op::new("gelu_backward", |asked, _| backward(asked)),
    ]
}

/// The normal distribution function of x, in a form.
fn below<L: Tensors>(library: &L, form: GeluForm, x: &L::Tensor) -> Result<L::Tensor> {
    match form {
        GeluForm::Exact => {
            let erf = library.unary(Unary::Erf, &library.scaled(x, FRAC_1_SQRT_2)?)?;
            library.affine(&erf, 0.5, 0.5)
        }
        GeluForm::Tanh => Gate::Gelu.sigmoid(library, x),
    }
}

fn forward<L: Tensors>(asked: &Asked<'_>) -> Result<Kernel<L>> {
    let form = GeluForm::of(asked.attributes())?;
    Ok(each(move |library: &L, [x]| {
        Ok([library.mul(&x, &below(library, form, &x)?)?])
    }))
}

fn backward<L: Tensors>(asked: &Asked<'_>) -> Result<Kernel<L>> {
    let form = GeluForm::of(asked.attributes())?;
    Ok(each(move |library: &L, [dy, x]| {
        let below = below(library, form, &x)?;
        let slope = match form {
            GeluForm::Exact => {
                // P + x e^(-x^2 / 2) / sqrt(2 pi)
                let exponent = library.scaled(&library.unary(Unary::Square, &x)?, -0.5)?;
                let density = library.unary(Unary::Exp, &exponent)?;
                let root = 0.5 * FRAC_2_SQRT_PI * FRAC_1_SQRT_2;
                let rise = library.mul(&x, &library.scaled(&density, root)?)?;
                library.add(&below, &rise)?
            }
            GeluForm::Tanh => {
                // s (1 + x z' (1 - s))
                let rest = library.affine(&below, -1.0, 1.0)?;
                let bent = library.mul(&Gate::Gelu.slope(library, &x)?, &rest)?;
                library.mul(&below, &library.affine(&bent, 1.0, 1.0)?)?
            }
        };
        Ok([library.mul(&dy, &slope)?])
    }))
}
