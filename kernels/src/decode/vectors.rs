//! Codes of vectors -> the sum of their vectors.

use espalier_interface::DType;
use espalier_interface::format::{Codebook, Vectors};
use half::{bf16, f16};

use super::PackedWeight;
use super::codes::unpack;
use super::weight::RUN;
use super::wide_codes::unpack_wide;
use crate::element::Element;
use crate::simd::vectorized;

impl PackedWeight<'_> {
    /// Decodes at most [`RUN`] elements from `flat` on: the sum of the vectors of each codebook.
    pub(super) fn vectors(&self, vectors: Vectors<'_>, flat: usize, out: &mut [f32]) {
        let len = vectors.len as usize;
        let (first, end) = (flat / len, (flat + out.len()).div_ceil(len));
        let (mut codes, mut wide) = ([0u8; RUN], [0u16; RUN]);
        let (codes, wide) = (&mut codes[..end - first], &mut wide[..end - first]);
        for (stage, (layout, codebook)) in vectors.stages().enumerate() {
            let bytes = self.segment(layout.segment);
            let place = (len, flat % len, stage == 0);
            if layout.are_wide() {
                vectorized(
                    #[inline(always)]
                    || unpack_wide(bytes, layout, first, wide),
                );
                self.sum(codebook, wide, place, out);
            } else {
                vectorized(
                    #[inline(always)]
                    || unpack(bytes, layout, first, codes),
                );
                self.sum(codebook, codes, place, out);
            }
        }
    }

    /// [`sum`] of the vectors of a codebook.
    fn sum<C: Copy + Into<usize>>(
        &self,
        codebook: Codebook<'_>,
        codes: &[C],
        place: (usize, usize, bool),
        out: &mut [f32],
    ) {
        let (segment, start) = match codebook {
            Codebook::Shared(values) => return sum(values, |x: f32| x, codes, place, out),
            Codebook::Segment { segment, first } => (segment, first * self.dtype(segment).bytes()),
        };
        let bytes = &self.segment(segment)[start as usize..];
        let (whole, half) = (bytes.as_chunks::<4>().0, bytes.as_chunks::<2>().0);
        match self.dtype(segment) {
            DType::F32 => sum(whole, f32::from_le_bytes, codes, place, out),
            DType::BF16 => sum(half, |x| bf16::from_le_bytes(x).load(), codes, place, out),
            _ => sum(half, |x| f16::from_le_bytes(x).load(), codes, place, out),
        }
    }
}

/// Adds the vectors of `codes` to `out`, or writes them where they are the first; `out` begins
/// `skipped` elements after the first vector's beginning.
fn sum<N: Copy + Default, C: Copy + Into<usize>>(
    codebook: &[N],
    read: impl Fn(N) -> f32,
    codes: &[C],
    (len, skipped, is_first): (usize, usize, bool),
    out: &mut [f32],
) {
    let mut numbers = [N::default(); RUN];
    let numbers = &mut numbers[..out.len()];
    vectorized(
        #[inline(always)]
        || {
            let are_whole = skipped == 0 && out.len().is_multiple_of(len);
            match len {
                2 if are_whole => whole::<_, _, 2>(codebook, codes, numbers),
                4 if are_whole => whole::<_, _, 4>(codebook, codes, numbers),
                8 if are_whole => whole::<_, _, 8>(codebook, codes, numbers),
                16 if are_whole => whole::<_, _, 16>(codebook, codes, numbers),
                _ => parts(codebook, codes, (len, skipped), numbers),
            }
            let numbers = out.iter_mut().zip(numbers.iter());
            if is_first {
                numbers.for_each(|(out, &number)| *out = read(number));
            } else {
                numbers.for_each(|(out, &number)| *out += read(number));
            }
        },
    );
}

/// Writes the vectors of `codes`, of a length that the compiler knows.
#[inline(always)]
fn whole<N: Copy, C: Copy + Into<usize>, const LEN: usize>(
    codebook: &[N],
    codes: &[C],
    out: &mut [N],
) {
    let vectors = codebook.as_chunks::<LEN>().0;
    for (out, &code) in out.as_chunks_mut::<LEN>().0.iter_mut().zip(codes) {
        *out = vectors[code.into()];
    }
}

/// Writes the vectors of `codes`, the first without its first `skipped` elements.
#[inline(always)]
fn parts<N: Copy, C: Copy + Into<usize>>(
    codebook: &[N],
    codes: &[C],
    (len, skipped): (usize, usize),
    out: &mut [N],
) {
    let (mut done, mut lane) = (0, skipped);
    for &code in codes {
        let end = (done + len - lane).min(out.len());
        let start = code.into() * len + lane;
        out[done..end].copy_from_slice(&codebook[start..start + end - done]);
        (done, lane) = (end, 0);
    }
}
