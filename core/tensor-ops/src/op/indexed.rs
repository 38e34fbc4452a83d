//! `row_max`, `is_argmax`, `pick`, `one_hot` and `scale_trained`.

use espalier_interface::{DType, Result};

use super::Op;
use super::rows::{Part, rows};
use crate::{Compare, Reduce, Tensors};

/// The label of a token that is not trained.
const IGNORED: f64 = -100.0;

pub fn ops<L: Tensors>() -> Vec<Op<L>> {
    vec![
        Op::new("row_max", |_, _| {
            Ok(rows(|part: Part<'_, '_, L>| {
                let library = part.launch.library;
                part.write(&library.reduce(Reduce::Max, &part.float(0)?, 1)?, 0)
            }))
        }),
        Op::new("is_argmax", |_, _| {
            Ok(rows(|part: Part<'_, '_, L>| {
                let library = part.launch.library;
                let first = first_largest(library, &part.float(0)?)?;
                let index = library.cast(&part.column(1)?, DType::F32)?;
                let same = library.compare(Compare::Equal, &first, &index)?;
                part.write(&library.cast(&same, DType::I64)?, 0)
            }))
        }),
        Op::new("pick", |_, _| {
            Ok(rows(|part: Part<'_, '_, L>| {
                let library = part.launch.library;
                let (x, index) = (part.float(0)?, part.column(1)?);
                let ignored = ignored(library, &index)?;
                let picked = library.pick(&x, &index_or_zero(library, &ignored, &index)?)?;
                part.write(&or_zero(library, &ignored, &picked)?, 0)
            }))
        }),
        Op::new("one_hot", |_, _| {
            Ok(rows(|part: Part<'_, '_, L>| {
                let library = part.launch.library;
                let index = library.cast(&part.column(0)?, DType::F32)?;
                let width = part.launch.output(0).shape()[1];
                let same = library.compare(Compare::Equal, &columns(library, width)?, &index)?;
                part.write(&library.cast(&same, DType::F32)?, 0)
            }))
        }),
        Op::new("scale_trained", |asked, _| {
            let places = asked.scalars(["factor"])?;
            Ok(rows(move |part: Part<'_, '_, L>| {
                let library = part.launch.library;
                let [factor] = part.launch.scalars_at(places);
                let scaled = library.scaled(&part.float(0)?, factor)?;
                let ignored = ignored(library, &part.column(1)?)?;
                part.write(&or_zero(library, &ignored, &scaled)?, 0)
            }))
        }),
    ]
}

/// The numbers of columns, `[1, N]` of f32, which holds them exactly up to 2^24.
fn columns<L: Tensors>(library: &L, width: usize) -> Result<L::Tensor> {
    let columns = library.cast(&library.range(0, width)?, DType::F32)?;
    library.reshape(&columns, &[1, width])
}

/// The column of the first largest number of each row, `[T, 1]` of f32.
pub fn first_largest<L: Tensors>(library: &L, x: &L::Tensor) -> Result<L::Tensor> {
    let width = library.shape(x)[1];
    let most = library.reduce(Reduce::Max, x, 1)?;
    let largest = library.compare(Compare::Equal, x, &most)?;
    let none = library.full(width as f64, &[1, 1], DType::F32)?;
    let places = library.choose(&largest, &columns(library, width)?, &none)?;
    library.reduce(Reduce::Min, &places, 1)
}

/// The mask of the rows without a label, `[T, 1]`.
pub fn ignored<L: Tensors>(library: &L, labels: &L::Tensor) -> Result<L::Tensor> {
    let ignored = library.full(IGNORED, &[1, 1], DType::I64)?;
    library.compare(Compare::Equal, labels, &ignored)
}

/// The labels, 0 where there is none.
pub fn index_or_zero<L: Tensors>(
    library: &L,
    ignored: &L::Tensor,
    labels: &L::Tensor,
) -> Result<L::Tensor> {
    library.choose(ignored, &library.full(0.0, &[1, 1], DType::I64)?, labels)
}

/// x, 0 in the rows of the mask.
pub fn or_zero<L: Tensors>(library: &L, ignored: &L::Tensor, x: &L::Tensor) -> Result<L::Tensor> {
    library.choose(ignored, &library.full(0.0, &[1, 1], DType::F32)?, x)
}
