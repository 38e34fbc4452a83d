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
            Codebook::Shared(values) => return sum(values, |x| x, codes, place, out),
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
fn sum<N: Copy, C: Copy + Into<usize>>(
    codebook: &[N],
    read: impl Fn(N) -> f32,
    codes: &[C],
    (len, skipped, is_first): (usize, usize, bool),
    out: &mut [f32],
) {
    vectorized(
        #[inline(always)]
        || {
            let (mut done, mut lane) = (0, skipped);
            for &code in codes {
                let end = (done + len - lane).min(out.len());
                let start = code.into() * len + lane;
                let vector = &codebook[start..start + end - done];
                for (out, &number) in out[done..end].iter_mut().zip(vector) {
                    let number = read(number);
                    *out = if is_first { number } else { *out + number };
                }
                (done, lane) = (end, 0);
            }
        },
    );
}
