//! `param_value`, its gradient, `adapted_row_norms` and `broadcast_param`.

use espalier_host_device::{Asked, Setting};
use espalier_interface::{DType, Result};

use super::rows::{Part, rows};
use super::{Kernel, Op, Temporaries};
use crate::launch::Launch;
use crate::weight::Weight;
use crate::{Tensors, Unary};

pub fn ops<L: Tensors>() -> Vec<Op<L>> {
    vec![
        Op::new("param_value", value).whole(),
        Op {
            temporaries: Temporaries::Parts(4),
            ..Op::new("param_value_backward", backward)
        },
        Op {
            temporaries: Temporaries::Whole(5),
            ..Op::new("adapted_row_norms", norms)
        },
        Op::new("broadcast_param", broadcast),
    ]
}

fn value<L: Tensors>(asked: &Asked<'_>, setting: &Setting<'_>) -> Result<Kernel<L>> {
    let weight = Weight::new(asked, setting, 0, 0)?;
    let temporary_bytes = weight.temporary_bytes();
    let kernel = Kernel::new(move |launch: &Launch<'_, L>| {
        let output = launch.output(0).reshaped(&weight.size());
        weight.blocks(launch, |w, [begin, len]| {
            launch.write(w, &output.narrowed(0, begin, len))
        })
    });
    Ok(kernel.with_temporaries(temporary_bytes))
}

/// `dp += dy`.
fn backward<L: Tensors>(_: &Asked<'_>, _: &Setting<'_>) -> Result<Kernel<L>> {
    Ok(Kernel::new(|launch: &Launch<'_, L>| {
        let elements = launch.output(0).elements();
        let [dy, sum] = [launch.input(0), launch.output(0)].map(|m| m.reshaped(&[elements]));
        launch.parts(elements, 1, |begin, len| {
            let (dy, sum) = (dy.narrowed(0, begin, len), sum.narrowed(0, begin, len));
            let total = launch
                .library
                .add(&launch.float(&sum)?, &launch.float(&dy)?)?;
            launch.write(&total, &sum)
        })
    }))
}

/// `n_i = sqrt(sum_j (W_ij + alpha sum_k b_ik a_kj)^2)`.
fn norms<L: Tensors>(asked: &Asked<'_>, setting: &Setting<'_>) -> Result<Kernel<L>> {
    let alpha = asked.attributes().number("alpha")?;
    let weight = Weight::new(asked, setting, 0, 0)?;
    asked.stored(1)?;
    asked.stored(2)?;
    let (a, b) = (weight.ranges(), weight.ranges() + 1);
    let temporary_bytes = weight.temporary_bytes();
    let kernel = Kernel::new(move |launch: &Launch<'_, L>| {
        let library = launch.library;
        let a = launch.float(launch.param(a))?;
        weight.blocks(launch, |w, [begin, len]| {
            let b = launch.float(&launch.param(b).narrowed(0, begin, len))?;
            let update = library.scaled(&library.matmul(&b, &a)?, alpha)?;
            let updated = library.add(&library.cast(w, DType::F32)?, &update)?;
            let sum = library.sum(&library.unary(Unary::Square, &updated)?, 1)?;
            let norms = library.reshape(&library.unary(Unary::Sqrt, &sum)?, &[len])?;
            launch.write(&norms, &launch.output(0).narrowed(0, begin, len))
        })
    });
    Ok(kernel.with_temporaries(temporary_bytes))
}

fn broadcast<L: Tensors>(_: &Asked<'_>, _: &Setting<'_>) -> Result<Kernel<L>> {
    Ok(rows(|part: Part<'_, '_, L>| {
        let (launch, library) = (part.launch, part.launch.library);
        let weight = super::scale_channels::row(launch, launch.param(0))?;
        let (n, width) = (library.shape(&weight)[1], launch.output(0).shape()[1]);
        let weight = library.reshape(&weight, &[1, 1, n])?;
        let expanded = library.expand(&weight, &[part.len, width / n, n])?;
        part.write(&expanded, 0)
    }))
}
