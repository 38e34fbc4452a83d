//! Codes of at most 4 bits in small blocks -> values: the numbers of all codes, then each block
//! times its scale. A table of scaled numbers for each block would cost more than its elements.

use espalier_interface::format::{BlockValues, Codes};

use super::PackedWeight;
use super::codes::{look_up_packed, look_up_scaled};
use super::weight::RUN;
use crate::simd::vectorized;

impl PackedWeight<'_> {
    /// Decodes at most [`RUN`] elements from `flat` on: `table[code] * scale[block]`, in blocks of
    /// `size`.
    pub(super) fn small_blocks(
        &self,
        codes: &Codes,
        scale: &BlockValues,
        (table, size): (&[f32; 16], usize),
        flat: usize,
        out: &mut [f32],
    ) {
        let bytes = self.segment(codes.segment);
        let (first, end) = (flat / size, (flat + out.len()).div_ceil(size));
        let mut scales = [0.0; RUN];
        let scales = &mut scales[..end - first];
        self.values(scale, first, scales);
        let place = (codes, flat);
        let done = look_up_scaled(self.isa(), bytes, place, table, (scales, size), out);
        let (out, flat, scales) = (&mut out[done..], flat + done, &scales[done / size..]);
        if out.is_empty() {
            return;
        }
        look_up_packed(self.isa(), bytes, codes, flat, table, out);
        let head = (size - flat % size) % size;
        let (head, whole) = out.split_at_mut(head.min(out.len()));
        let (of_head, of_whole) = scales.split_at(usize::from(!head.is_empty()));
        vectorized(
            #[inline(always)]
            || {
                of_head.iter().for_each(|&scale| times(head, scale));
                match size {
                    16 => blocks::<16>(whole, of_whole),
                    32 => blocks::<32>(whole, of_whole),
                    _ => {
                        for (block, &scale) in whole.chunks_mut(size).zip(of_whole) {
                            times(block, scale);
                        }
                    }
                }
            },
        );
    }
}

/// Blocks of a size that the compiler knows; the last may be a part of one.
#[inline(always)]
fn blocks<const SIZE: usize>(out: &mut [f32], scales: &[f32]) {
    let (whole, rest) = out.as_chunks_mut::<SIZE>();
    for (block, &scale) in whole.iter_mut().zip(scales) {
        block.iter_mut().for_each(|x| *x *= scale);
    }
    if let Some(&scale) = scales.get(whole.len()) {
        times(rest, scale);
    }
}

#[inline(always)]
fn times(block: &mut [f32], scale: f32) {
    block.iter_mut().for_each(|x| *x *= scale);
}
