//! Values in the dtype of arithmetic -> an output, some hundred elements at a time.
#![allow(unsafe_code)] // Dtypes with equal ids are the same type.

use std::ops::Range;

use crate::added::Added;
use crate::element::{Element, Real};
use crate::matmul::{Sum, store_row};

/// Elements that are computed before they are rounded: they stay in the first-level cache.
const SOME: usize = 256;

/// Writes `out`: `fill(range, values)` gives the values of some elements, which are rounded.
///
/// To be called within `vectorized`. Where an output is narrow, this is faster than a rounding
/// element by element, which compilers do with integers.
#[inline(always)]
pub(crate) fn rounded<E: Element>(out: &mut [E], fill: impl FnMut(Range<usize>, &mut [E::Acc])) {
    rounded_onto(out, Added::Nothing, fill);
}

/// [`rounded`] values, or the rounded sums of them and what is added.
#[inline(always)]
pub(crate) fn rounded_onto<E: Element>(
    out: &mut [E],
    added: Added<'_, E>,
    mut fill: impl FnMut(Range<usize>, &mut [E::Acc]),
) {
    let mut space = [E::Acc::ZERO; SOME];
    for (idx, out) in out.chunks_mut(SOME).enumerate() {
        let at = idx * SOME..idx * SOME + out.len();
        if let (Added::Nothing, Some(values)) = (added, wide(out)) {
            fill(at, values);
            continue;
        }
        let values = &mut space[..out.len()];
        let sum = Sum {
            added: added.part(at.start, at.len()),
            ..Sum::PRODUCT
        };
        fill(at, values);
        store_row(values, sum, out);
    }
}

/// [`rounded`] values of what an output holds, in its place: `map` gives each of its element.
#[inline(always)]
pub(crate) fn rounded_in_place<E: Element>(out: &mut [E], map: impl Fn(E::Acc) -> E::Acc) {
    let mut space = [E::Acc::ZERO; SOME];
    for out in out.chunks_mut(SOME) {
        if let Some(values) = wide(out) {
            values.iter_mut().for_each(|value| *value = map(*value));
            continue;
        }
        let values = &mut space[..out.len()];
        for (value, x) in values.iter_mut().zip(&*out) {
            *value = map(x.load());
        }
        store_row(values, Sum::PRODUCT, out);
    }
}

/// [`rounded`] of two outputs of one length.
#[inline(always)]
pub(crate) fn both_rounded<E: Element>(
    a: &mut [E],
    b: &mut [E],
    mut fill: impl FnMut(Range<usize>, &mut [E::Acc], &mut [E::Acc]),
) {
    assert_eq!(a.len(), b.len(), "two outputs differ in length");
    let mut space = [[E::Acc::ZERO; SOME]; 2];
    let pairs = a.chunks_mut(SOME).zip(b.chunks_mut(SOME));
    for (idx, (a, b)) in pairs.enumerate() {
        let at = idx * SOME..idx * SOME + a.len();
        if let (Some(a), Some(b)) = (wide(a), wide(b)) {
            fill(at, a, b);
            continue;
        }
        let [of_a, of_b] = &mut space;
        let (of_a, of_b) = (&mut of_a[..a.len()], &mut of_b[..b.len()]);
        fill(at, of_a, of_b);
        store_row(of_a, Sum::PRODUCT, a);
        store_row(of_b, Sum::PRODUCT, b);
    }
}

/// The output itself, where it has the dtype of arithmetic.
#[inline(always)]
fn wide<E: Element>(out: &mut [E]) -> Option<&mut [E::Acc]> {
    // SAFETY: the same type.
    (E::DTYPE == E::Acc::DTYPE)
        .then(|| unsafe { std::slice::from_raw_parts_mut(out.as_mut_ptr().cast(), out.len()) })
}
