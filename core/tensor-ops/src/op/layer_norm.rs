//! `layer_norm` and its gradients.

use espalier_host_device::{Asked, Setting};
use espalier_interface::Result;

use super::rows::{Part, rows};
use super::scale_channels::row;
use super::{Kernel, Op};
use crate::launch::Launch;
use crate::{Tensors, Unary};

pub fn ops<L: Tensors>() -> Vec<Op<L>> {
    vec![
        Op::new("layer_norm", forward),
        Op::new("layer_norm_backward", backward),
        Op::new("layer_norm_weight_backward", weight_backward),
    ]
}

/// The mean of each row, `[T, 1]`.
fn mean<L: Tensors>(library: &L, x: &L::Tensor) -> Result<L::Tensor> {
    let count = library.full(library.shape(x)[1] as f64, &[1], library.dtype(x))?;
    library.div(&library.sum(x, 1)?, &count)
}

/// `r` `[T, 1]` and `n` `[T, D]` of rows.
fn normal<L: Tensors>(library: &L, x: &L::Tensor, eps: f64) -> Result<[L::Tensor; 2]> {
    let centred = library.sub(x, &mean(library, x)?)?;
    let variance = mean(library, &library.unary(Unary::Square, &centred)?)?;
    let root = library.unary(Unary::Sqrt, &library.affine(&variance, 1.0, eps)?)?;
    let one = library.full(1.0, &[1], library.dtype(x))?;
    let inverse = library.div(&one, &root)?;
    let normal = library.mul(&centred, &inverse)?;
    Ok([inverse, normal])
}

fn forward<L: Tensors>(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Kernel<L>> {
    let eps = asked.attributes().number("eps")?;
    let has_bias = asked.request.params.len() > 1;
    Ok(rows(move |part: Part<'_, '_, L>| {
        let (launch, library) = (part.launch, part.launch.library);
        let [_, normal] = normal(library, &part.float(0)?, eps)?;
        let y = library.mul(&normal, &row(launch, launch.param(0))?)?;
        let y = if has_bias {
            library.add(&y, &row(launch, launch.param(1))?)?
        } else {
            y
        };
        part.write(&y, 0)
    }))
}

fn backward<L: Tensors>(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Kernel<L>> {
    let eps = asked.attributes().number("eps")?;
    Ok(rows(move |part: Part<'_, '_, L>| {
        let (launch, library) = (part.launch, part.launch.library);
        let [inverse, normal] = normal(library, &part.float(1)?, eps)?;
        // dx = r (g - mean(g) - n mean(g n)) with g = dy w
        let g = library.mul(&part.float(0)?, &row(launch, launch.param(0))?)?;
        let level = mean(library, &g)?;
        let pull = mean(library, &library.mul(&g, &normal)?)?;
        let apart = library.sub(&library.sub(&g, &level)?, &library.mul(&normal, &pull)?)?;
        part.write(&library.mul(&inverse, &apart)?, 0)
    }))
}

fn weight_backward<L: Tensors>(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Kernel<L>> {
    let eps = asked.attributes().number("eps")?;
    Ok(Kernel::new(move |launch: &Launch<'_, L>| {
        let library = launch.library;
        let dweight = launch.output(0);
        let width = dweight.elements();
        let rows = [launch.input(0).elements() / width, width];
        let [dy, x] = [0, 1].map(|index| launch.input(index).reshaped(&rows));
        let sums = launch.gathered(rows[0], width, |begin, len| {
            let x = launch.float(&x.narrowed(0, begin, len))?;
            let [_, normal] = normal(library, &x, eps)?;
            let dy = launch.float(&dy.narrowed(0, begin, len))?;
            library.sum(&library.mul(&dy, &normal)?, 0)
        })?;
        let sum = library.sum(&sums, 0)?;
        super::linear::accumulate(launch, &sum, dweight)
    }))
}
