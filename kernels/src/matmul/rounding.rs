//! A block of sums -> the output's dtype, and what is added there.
#![allow(unsafe_code)] // Calls of vector kernels.

#[cfg(target_arch = "x86_64")]
mod vectors;

use half::bf16;

use super::tile::Tile;
use crate::added::Added;
use crate::element::{Element, Real};
use crate::simd::vectorized;

/// `added + alpha p`, where `p` is a product that was rounded to the output's dtype before. The sum
/// is in the dtype of arithmetic and is rounded in turn.
#[derive(Clone, Copy, Debug)]
pub struct Sum<'a, E> {
    /// Factor of the product.
    pub alpha: f64,
    /// What it is added to.
    pub added: Added<'a, E>,
    /// What the sum, rounded, is added to in turn, with the output's stride.
    pub residual: Option<&'a [E]>,
}

impl<E: Copy> Sum<'_, E> {
    /// The product itself.
    pub const PRODUCT: Self = Sum {
        alpha: 1.0,
        added: Added::Nothing,
        residual: None,
    };

    /// Whether what is added belongs to an output of `len` elements.
    pub(super) fn fits(&self, len: usize) -> bool {
        let residual = self.residual.is_none_or(|values| values.len() == len);
        residual && self.added.fits(len)
    }

    /// The same for `len` elements of the output from `first` on.
    #[inline(always)]
    pub(super) fn part(&self, first: usize, len: usize) -> Self {
        Sum {
            added: self.added.part(first, len),
            residual: self.residual.map(|values| &values[first..first + len]),
            ..*self
        }
    }
}

/// A block of sums, and what the output is of them.
///
/// It is passed by reference: to copy what was just written, processors wait for all stores before.
#[derive(Clone, Copy)]
pub(super) struct Addend<'a, E: Element> {
    /// The sums.
    pub sums: Tile<E::Acc>,
    /// What is added, from the block's first element on.
    pub sum: Sum<'a, E>,
}

impl<'a, E: Element> Addend<'a, E> {
    /// The same for rows and columns from these on, `first` elements on in the output.
    ///
    /// # Safety
    /// The sums have them.
    #[inline(always)]
    pub unsafe fn from(&self, (row, col): (usize, usize), first: usize, len: usize) -> Self {
        Addend {
            // SAFETY: the caller's promise.
            sums: unsafe { self.sums.from(row, col) },
            sum: self.sum.part(first, len),
        }
    }

    /// Itself, where it is of bf16.
    #[inline(always)]
    fn bf16(&self) -> Option<&Addend<'a, bf16>> {
        // SAFETY: dtypes with equal ids are the same type.
        (E::DTYPE == bf16::DTYPE).then(|| unsafe { &*std::ptr::from_ref(self).cast() })
    }
}

/// Writes a block of `rows` x `cols` in the output's dtype: what comes of the first sums, then of
/// the second ones, if there are any. It begins at the block's first element.
///
/// # Safety
/// All tiles have the block, and nothing else uses it.
pub(super) unsafe fn store_block<E: Element>(
    first: &Addend<'_, E>,
    second: Option<&Addend<'_, E>>,
    out: Tile<E>,
    (rows, cols): (usize, usize),
) {
    if let Some(second) = second
        && !matches!(second.sum.added, Added::Output)
    {
        // SAFETY: the caller's promises.
        unsafe {
            store_block(first, None, out, (rows, cols));
            store_block(second, None, out, (rows, cols));
        }
        return;
    }
    // SAFETY: the caller's promises.
    let done = unsafe { store_bf16(first, second, out, (rows, cols)) };
    if done == cols {
        return;
    }
    vectorized(
        #[inline(always)]
        move || {
            for row in 0..rows {
                let (at, len) = (row * out.stride + done, cols - done);
                // SAFETY: a row of the block.
                let to = unsafe { out.row(row, done, len) };
                for addend in std::iter::once(first).chain(second) {
                    // SAFETY: as above.
                    let sums = unsafe { addend.sums.row(row, done, len) };
                    store_sum(sums, addend.sum.part(at, len), to);
                }
            }
        },
    );
}

/// Writes a row of sums, or of other values, in the output's dtype, as `sum` says.
pub(crate) fn store_row<E: Element>(sums: &mut [E::Acc], sum: Sum<'_, E>, out: &mut [E]) {
    assert_eq!(sums.len(), out.len(), "a row has another length");
    let (block, sums) = ((1, out.len()), Tile::of(sums));
    // SAFETY: a row of each.
    unsafe { store_block(&Addend { sums, sum }, None, Tile::of(out), block) };
}

/// Adds a bias to each of some rows of sums.
///
/// # Safety
/// The sums have the rows, as long as the bias, and nothing else uses them.
pub(super) unsafe fn add_bias<R: Real>(sums: Tile<R>, rows: usize, bias: &[R]) {
    for row in 0..rows {
        // SAFETY: the caller's promises.
        add_row(unsafe { sums.row(row, 0, bias.len()) }, bias);
    }
}

/// Adds a row of bias.
fn add_row<R: Real>(sums: &mut [R], bias: &[R]) {
    vectorized(
        #[inline(always)]
        || {
            for (sum, &bias) in sums.iter_mut().zip(bias) {
                *sum += bias;
            }
        },
    );
}

/// A row of [`store_block`], element by element.
#[inline(always)]
fn store_sum<E: Element>(sums: &[E::Acc], sum: Sum<'_, E>, out: &mut [E]) {
    let alpha = E::Acc::from_f64(sum.alpha);
    match sum.added {
        Added::Nothing if sum.alpha == 1.0 => {
            for (out, &sum) in out.iter_mut().zip(sums) {
                *out = E::store(sum);
            }
        }
        Added::Nothing => {
            for (out, &sum) in out.iter_mut().zip(sums) {
                *out = E::store(alpha * E::store(sum).load());
            }
        }
        Added::Output => {
            for (out, &sum) in out.iter_mut().zip(sums) {
                *out = E::store(out.load() + alpha * E::store(sum).load());
            }
        }
        Added::Values(added) => {
            for ((out, &sum), added) in out.iter_mut().zip(sums).zip(added) {
                *out = E::store(added.load() + alpha * E::store(sum).load());
            }
        }
    }
    if let Some(residual) = sum.residual {
        for (out, residual) in out.iter_mut().zip(residual) {
            *out = E::store(residual.load() + out.load());
        }
    }
}

/// Stores bf16 with AVX-512; returns the number of columns done, which is 0 for other dtypes.
///
/// Compilers narrow vectors by stores of their truncated elements, which are slow on some
/// processors. Here the upper halves of two vectors are gathered into one.
///
/// # Safety
/// As [`store_block`].
#[inline(always)]
unsafe fn store_bf16<E: Element>(
    first: &Addend<'_, E>,
    second: Option<&Addend<'_, E>>,
    out: Tile<E>,
    block: (usize, usize),
) -> usize {
    #[cfg(target_arch = "x86_64")]
    if let Some(first) = first.bf16()
        && crate::simd::has_avx512()
    {
        let (second, out) = (second.and_then(Addend::bf16), out.cast());
        // SAFETY: the features were detected; else the caller's promises, of sums in f32.
        return unsafe {
            if crate::simd::has_avx512_bf16() {
                vectors::by_instruction(first, second, out, block)
            } else {
                vectors::by_integers(first, second, out, block)
            }
        };
    }
    let _ = (first, second, out, block);
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers with NaNs, infinities, halves, large and subnormal ones among them; of every other
    /// row of 64, none is subnormal.
    fn sample(len: usize, seed: u32) -> Vec<f32> {
        let bits = |i: u32| match i % 7 {
            0 => 0x7F80_0001 | i << 31,
            1 => 0x3F80_8000 + (i << 16),
            2 => 0x7F7F_FFFF,
            3 if (i / 64).is_multiple_of(2) => i.wrapping_mul(2_654_435_761) & 0x807F_FFFF,
            _ => i.wrapping_mul(2_654_435_761).rotate_left(seed),
        };
        (0..len as u32).map(|i| f32::from_bits(bits(i))).collect()
    }

    fn bits(values: &[bf16]) -> Vec<u16> {
        // A NaN may be any.
        let one = |x: &bf16| if x.is_nan() { 0x7FC0 } else { x.to_bits() };
        values.iter().map(one).collect()
    }

    #[test]
    fn rows_of_bf16_are_rounded_as_single_elements() {
        for len in [0, 1, 31, 32, 33, 77, 4096] {
            let mut sums = sample(len, 0);
            let expected: Vec<u16> = sums.iter().map(|&x| bf16::store(x).to_bits()).collect();
            let mut out = vec![bf16::ZERO; len];
            store_row(&mut sums, Sum::PRODUCT, &mut out);
            let found: Vec<u16> = out.iter().map(|x| x.to_bits()).collect();
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn rows_are_added_as_single_elements() {
        for len in [0, 1, 31, 32, 33, 77, 4096] {
            for alpha in [1.0f32, -0.3, 4.0] {
                let earlier = sample(len, 5).into_iter();
                let earlier: Vec<bf16> = earlier.map(bf16::store).collect();
                let residual: Vec<bf16> = sample(len, 7).into_iter().map(bf16::store).collect();
                let product = sample(len, 9).into_iter();
                let product: Vec<f32> = product.map(|x| bf16::store(x).load()).collect();
                let scaled = product.iter().map(|p| bf16::store(alpha * p));
                let scaled: Vec<bf16> = scaled.collect();
                let sums = earlier.iter().zip(&product);
                let sums = sums.map(|(earlier, p)| bf16::store(earlier.load() + alpha * p));
                let sums: Vec<bf16> = sums.collect();
                let zeros = || vec![bf16::ZERO; len];
                let cases = [
                    (Added::Nothing, zeros(), scaled),
                    (Added::Values(&earlier), zeros(), sums.clone()),
                    (Added::Output, earlier.clone(), sums),
                ];
                for (added, before, expected) in cases {
                    let with_residual = expected.iter().zip(&residual);
                    let with_residual =
                        with_residual.map(|(sum, x)| bf16::store(x.load() + sum.load()));
                    for (residual, expected) in [
                        (Some(&residual[..]), with_residual.collect()),
                        (None, expected.clone()),
                    ] {
                        let sum = Sum {
                            alpha: f64::from(alpha),
                            added,
                            residual,
                        };
                        check(sum, &before, &bits(&expected));
                    }
                }
            }
        }
    }

    #[test]
    fn two_blocks_of_sums_are_stored_as_one_after_the_other() {
        let (rows, cols, stride) = (3, 77, 80);
        let narrow = |seed| sample(rows * stride, seed).into_iter().map(bf16::store);
        let [residual, added, before] = [3, 5, 7].map(|seed| narrow(seed).collect::<Vec<bf16>>());
        let of = |alpha, added, residual| Sum {
            alpha,
            added,
            residual,
        };
        let firsts = [Added::Nothing, Added::Output, Added::Values(&added[..])];
        let seconds = [
            of(1.0, Added::Output, None),
            of(-0.3, Added::Output, Some(&residual[..])),
        ];
        for first in firsts
            .map(|added| of(4.0, added, None))
            .into_iter()
            .chain([Sum::PRODUCT])
        {
            for second in seconds {
                let [mut a, mut b] = [9, 11].map(|seed| sample(rows * stride, seed));
                let addend = |sum, of: &mut [f32]| {
                    let start = of.as_mut_ptr();
                    let sums = Tile { start, stride };
                    Addend { sums, sum }
                };
                let (first, second) = (addend(first, &mut a), addend(second, &mut b));
                let stored = |at_once: bool| {
                    let mut out = before.clone();
                    let start = out.as_mut_ptr();
                    let (to, block) = (Tile { start, stride }, (rows, cols));
                    // SAFETY: all have the rows, with this stride.
                    unsafe {
                        if at_once {
                            store_block(&first, Some(&second), to, block);
                        } else {
                            store_block(&first, None, to, block);
                            store_block(&second, None, to, block);
                        }
                    }
                    bits(&out)
                };
                assert_eq!(stored(true), stored(false));
            }
        }
    }

    /// Fails where a row of [`sample`] does not become `expected` with some of the vectors that
    /// this CPU has.
    fn check(sum: Sum<'_, bf16>, before: &[bf16], expected: &[u16]) {
        let len = before.len();
        let mut out = before.to_vec();
        store_row(&mut sample(len, 9), sum, &mut out);
        assert_eq!(bits(&out), expected);
        #[cfg(target_arch = "x86_64")]
        if crate::simd::has_avx512() {
            let mut out = before.to_vec();
            let mut sums = sample(len, 9);
            let (block, sums) = ((1, len), Tile::of(&mut sums));
            let addend = Addend { sums, sum };
            // SAFETY: the features were detected; a row of each.
            let done = unsafe { vectors::by_integers(&addend, None, Tile::of(&mut out), block) };
            assert_eq!(bits(&out[..done]), expected[..done]);
        }
    }
}
