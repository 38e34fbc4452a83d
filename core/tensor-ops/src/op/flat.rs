//! `zero`, `cast`, `sum_squares` and `first_not_finite`, on flat runs of elements.

use espalier_host_device::{Asked, Setting};
use espalier_interface::{DType, Result};

use super::rows::each;
use super::{Dtypes, Kernel, Op};
use crate::launch::Launch;
use crate::{Compare, Reduce, Tensors, Unary};

/// Elements of a run that give one partial result. So the order of sums depends on n alone.
const CHUNK: usize = 1 << 15;

pub fn ops<L: Tensors>() -> Vec<Op<L>> {
    vec![
        Op::new("zero", zero).of(Dtypes::Any),
        Op::new("cast", |_, _| Ok(each(|_: &L, [x]| Ok([x])))).of(Dtypes::Stored),
        Op::new("sum_squares", sum_squares).of(Dtypes::Stored),
        Op::new("first_not_finite", first_not_finite).of(Dtypes::Stored),
    ]
}

fn zero<L: Tensors>(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Kernel<L>> {
    if asked.output(0).dtype.bytes() == 0 {
        return Err(asked.bad_dtype(asked.output(0).dtype, "one with a size"));
    }
    Ok(Kernel::new(|launch: &Launch<'_, L>| {
        let bytes = launch.output(0).as_bytes();
        launch.parts(bytes.elements(), 1, |begin, len| {
            let zeros = launch.library.full(0.0, &[len], DType::U8)?;
            launch.write(&zeros, &bytes.narrowed(0, begin, len))
        })
    }))
}

/// Partial results of the chunks of input 0, `[n / CHUNK]`, by `partial`, which gives one number.
fn partials<L: Tensors>(
    launch: &Launch<'_, L>,
    dtype: DType,
    partial: impl Fn(&L, L::Tensor, usize) -> Result<L::Tensor> + Sync,
) -> Result<L::Tensor> {
    let input = launch.input(0).reshaped(&[launch.input(0).elements()]);
    let count = input.elements().div_ceil(CHUNK);
    let partials = launch.workspace(dtype, count);
    launch.each(count, |index| {
        let begin = index * CHUNK;
        let len = CHUNK.min(input.elements() - begin);
        let x = launch.read(&input.narrowed(0, begin, len))?;
        let number = partial(launch.library, x, begin)?;
        let number = launch.library.reshape(&number, &[1])?;
        launch.write(&number, &partials.narrowed(0, index, 1))
    })?;
    launch.read(&partials)
}

/// Bytes of the partial results of input 0.
fn workspace_bytes(asked: &Asked<'_>) -> Result<usize> {
    let (tokens, sequences) = (asked.request.max_tokens, asked.request.max_sequences);
    let input = &asked.ranges()[0];
    let bytes = input.bytes(tokens, sequences);
    let bytes = bytes.ok_or_else(|| asked.invalid("the number of bytes exceeds u64".into()))?;
    let elements = (bytes / input.dtype.bytes().max(1)) as usize;
    Ok(8 * elements.div_ceil(CHUNK))
}

/// In f64: squares of a chunk, then the sums of chunks.
fn sum_squares<L: Tensors>(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Kernel<L>> {
    let kernel = Kernel::new(|launch: &Launch<'_, L>| {
        let library = launch.library;
        if launch.input(0).elements() == 0 {
            return launch.write(&library.full(0.0, &[1], DType::F64)?, launch.output(0));
        }
        let partials = partials(launch, DType::F64, |library, x, _| {
            let x = library.cast(&x, DType::F64)?;
            library.sum(&library.unary(Unary::Square, &x)?, 0)
        })?;
        launch.write(&library.sum(&partials, 0)?, launch.output(0))
    });
    Ok(kernel.with_workspace(workspace_bytes(asked)?))
}

/// The least index of a number whose product with 0 is not 0.
fn first_not_finite<L: Tensors>(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Kernel<L>> {
    let kernel = Kernel::new(|launch: &Launch<'_, L>| {
        let (library, output) = (launch.library, launch.output(0));
        let elements = launch.input(0).elements();
        let none = || library.full(-1.0, &[1], DType::I64);
        if elements == 0 {
            return launch.write(&none()?, output);
        }
        let partials = partials(launch, DType::I64, |library, x, begin| {
            let x = library.cast(&x, DType::F32)?;
            let zeros = library.full(0.0, &[1], DType::F32)?;
            let finite = library.compare(Compare::Equal, &library.mul(&x, &zeros)?, &zeros)?;
            let len = library.shape(&x)[0];
            let places = library.range(begin, begin + len)?;
            let beyond = library.full(elements as f64, &[1], DType::I64)?;
            library.reduce(Reduce::Min, &library.choose(&finite, &beyond, &places)?, 0)
        })?;
        let first = library.reduce(Reduce::Min, &partials, 0)?;
        let beyond = library.full(elements as f64, &[1], DType::I64)?;
        let is_none = library.compare(Compare::Equal, &first, &beyond)?;
        launch.write(&library.choose(&is_none, &none()?, &first)?, output)
    });
    Ok(kernel.with_workspace(workspace_bytes(asked)?))
}
