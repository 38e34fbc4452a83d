//! `rms_norm` and `rms_norm_offset` with their gradients.
//!
//! Rows `[T, D]` are `[T, D / G, G]`: a weight of G elements norms each G columns by themselves.

use espalier_host_device::{Asked, Setting};
use espalier_interface::Result;

use super::rows::{Part, rows};
use super::{Kernel, Op};
use crate::launch::Launch;
use crate::{Binary, Tensors, Unary};

/// Index of the input `added`, which version 1 does not have.
const ADDED: usize = 2;

pub fn ops<L: Tensors>() -> Vec<Op<L>> {
    vec![
        Op::new("rms_norm", forward),
        Op::new("rms_norm_backward", backward),
        Op::new("rms_norm_backward", backward).version(2),
        Op::new("rms_norm_weight_backward", weight_backward),
        Op::new("rms_norm_offset", forward),
        Op::new("rms_norm_offset_backward", backward),
        Op::new("rms_norm_offset_weight_backward", weight_backward),
    ]
}

/// What is added to the weight; none for `rms_norm`, which rounds the norm instead.
fn offset(asked: &Asked<'_>) -> Option<f64> {
    asked.attributes().optional_number("offset")
}

/// The factors of a row of columns, `[1, G]`: the weight, with the offset if there is one.
fn factors<L: Tensors>(launch: &Launch<'_, L>, offset: Option<f64>) -> Result<L::Tensor> {
    let weight = super::scale_channels::row(launch, launch.param(0))?;
    match offset {
        Some(offset) => launch.library.affine(&weight, 1.0, offset),
        None => Ok(weight),
    }
}

/// `1 / sqrt(mean(x^2) + eps)` of the last dimension, kept.
fn inverse<L: Tensors>(library: &L, x: &L::Tensor, eps: f64) -> Result<L::Tensor> {
    let last = library.shape(x).len() - 1;
    let group = library.shape(x)[last];
    let sum = library.sum(&library.unary(Unary::Square, x)?, last)?;
    let count = library.full(group as f64, &[1], library.dtype(x))?;
    let mean = library.binary(Binary::Div, &sum, &count)?;
    let root = library.unary(Unary::Sqrt, &library.affine(&mean, 1.0, eps)?)?;
    let one = library.full(1.0, &[1], library.dtype(x))?;
    library.binary(Binary::Div, &one, &root)
}

fn forward<L: Tensors>(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Kernel<L>> {
    let (eps, dtype) = (asked.attributes().number("eps")?, asked.input(0).dtype);
    let offset = offset(asked);
    Ok(rows(move |part: Part<'_, '_, L>| {
        let (launch, library) = (part.launch, part.launch.library);
        let weight = factors(launch, offset)?;
        let group = library.shape(&weight)[1];
        let x = part.float(0)?;
        let width = library.shape(&x)[1];
        let x = library.reshape(&x, &[part.len * width / group, group])?;
        let normed = library.mul(&x, &inverse(library, &x, eps)?)?;
        let normed = match offset {
            Some(_) => normed,
            None => launch.rounded(&normed, dtype)?,
        };
        part.write(&library.mul(&normed, &weight)?, 0)
    }))
}

fn backward<L: Tensors>(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Kernel<L>> {
    let (eps, dtype) = (asked.attributes().number("eps")?, asked.input(0).dtype);
    let offset = offset(asked);
    let has_added = asked.request.inputs.len() > ADDED;
    let kernel = rows(move |part: Part<'_, '_, L>| {
        let (launch, library) = (part.launch, part.launch.library);
        let weight = factors(launch, offset)?;
        let group = library.shape(&weight)[1];
        let (dy, x) = (part.float(0)?, part.float(1)?);
        let shape = library.shape(&x);
        let groups = [part.len * shape[1] / group, group];
        let (dy, x) = (
            library.reshape(&dy, &groups)?,
            library.reshape(&x, &groups)?,
        );
        // dx = r (g - x r^2 mean(g x)) with g = dy w
        let r = inverse(library, &x, eps)?;
        let g = library.mul(&dy, &weight)?;
        let count = library.full(group as f64, &[1], library.dtype(&x))?;
        let mean = library.div(&library.sum(&library.mul(&g, &x)?, 1)?, &count)?;
        let factor = library.mul(&library.unary(Unary::Square, &r)?, &mean)?;
        let dx = library.mul(&r, &library.sub(&g, &library.mul(&x, &factor)?)?)?;
        let mut dx = library.reshape(&dx, &shape)?;
        if has_added {
            dx = library.add(&part.float(ADDED)?, &launch.rounded(&dx, dtype)?)?;
        }
        part.write(&dx, 0)
    });
    Ok(kernel.in_place_of(has_added.then_some(ADDED)))
}

fn weight_backward<L: Tensors>(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Kernel<L>> {
    let (eps, dtype) = (asked.attributes().number("eps")?, asked.input(0).dtype);
    let offset = offset(asked);
    Ok(Kernel::new(move |launch: &Launch<'_, L>| {
        let library = launch.library;
        let dweight = launch.output(0);
        let group = dweight.elements();
        let rows = [launch.input(0).elements() / group, group];
        let [dy, x] = [0, 1].map(|index| launch.input(index).reshaped(&rows));
        let sums = launch.gathered(rows[0], group, |begin, len| {
            let x = launch.float(&x.narrowed(0, begin, len))?;
            let normed = library.mul(&x, &inverse(library, &x, eps)?)?;
            let normed = match offset {
                Some(_) => normed,
                None => launch.rounded(&normed, dtype)?,
            };
            let dy = launch.float(&dy.narrowed(0, begin, len))?;
            library.sum(&library.mul(&dy, &normed)?, 0)
        })?;
        let sum = library.sum(&sums, 0)?;
        super::linear::accumulate(launch, &sum, dweight)
    }))
}
