//! `cross_entropy` and `cross_entropy_backward`.

use espalier_host_device::{Asked, Setting};
use espalier_interface::{DType, Result};

use super::indexed::{first_largest, ignored, index_or_zero, or_zero};
use super::rows::{Part, rows};
use super::{Kernel, Op};
use crate::{Compare, Reduce, Tensors, Unary};

pub fn ops<L: Tensors>() -> Vec<Op<L>> {
    vec![
        Op::new("cross_entropy", forward),
        Op::new("cross_entropy_backward", backward),
        Op::new("cross_entropy_backward", |asked, setting| {
            Ok(backward(asked, setting)?.in_place_of(Some(0)))
        })
        .version(2),
    ]
}

fn forward<L: Tensors>(_: &Asked<'_>, _: &Setting<'_>) -> Result<Kernel<L>> {
    Ok(rows(|part: Part<'_, '_, L>| {
        let library = part.launch.library;
        let (logits, labels) = (part.float(0)?, part.column(1)?);
        let ignored = ignored(library, &labels)?;
        let most = library.reduce(Reduce::Max, &logits, 1)?;
        let exponentials = library.unary(Unary::Exp, &library.sub(&logits, &most)?)?;
        let log = library.unary(Unary::Log, &library.sum(&exponentials, 1)?)?;
        let lse = library.add(&most, &log)?;
        let label = library.pick(&logits, &index_or_zero(library, &ignored, &labels)?)?;
        part.write(&or_zero(library, &ignored, &library.sub(&lse, &label)?)?, 0)?;
        part.write(&or_zero(library, &ignored, &lse)?, 1)?;
        let first = first_largest(library, &logits)?;
        // No column has the number -100.
        let labels = library.cast(&labels, DType::F32)?;
        let correct = library.compare(Compare::Equal, &first, &labels)?;
        part.write(&library.cast(&correct, DType::I64)?, 2)
    }))
}

fn backward<L: Tensors>(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Kernel<L>> {
    let places = asked.scalars(["factor"])?;
    Ok(rows(move |part: Part<'_, '_, L>| {
        let library = part.launch.library;
        let [factor] = part.launch.scalars_at(places);
        let (logits, labels) = (part.float(0)?, part.column(1)?);
        let lse = library.reshape(&part.float(2)?, &[part.len, 1])?;
        let weights = library.unary(Unary::Exp, &library.sub(&logits, &lse)?)?;
        let width = library.shape(&logits)[1];
        let columns = library.cast(&library.range(0, width)?, DType::F32)?;
        let columns = library.reshape(&columns, &[1, width])?;
        let own = library.cast(&labels, DType::F32)?;
        let own = library.compare(Compare::Equal, &columns, &own)?;
        let own = library
            .affine(&weights, 1.0, -1.0)
            .and_then(|less| library.choose(&own, &less, &weights))?;
        let dlogits = library.scaled(&own, factor)?;
        part.write(&or_zero(library, &ignored(library, &labels)?, &dlogits)?, 0)
    }))
}
