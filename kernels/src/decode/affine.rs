//! Split codes of an affine format -> values, in one pass over the words of a slot.

use espalier_interface::format::{BlockMap, BlockValues, Codes};

use super::PackedWeight;
use super::codes::split_runs;
use super::weight::RUN;
use crate::simd::vectorized;

impl PackedWeight<'_> {
    /// Decodes at most [`RUN`] elements of `row` from `col` on: `(code - zero[block]) *
    /// scale[block]`.
    ///
    /// # Panics
    /// Where the codes are not split.
    pub(super) fn split_affine(
        &self,
        codes: &Codes,
        blocks: BlockMap,
        [scale, zero]: [&BlockValues; 2],
        (row, col): (usize, usize),
        out: &mut [f32],
    ) {
        let flat = row * self.shape()[1] as usize + col;
        let bytes = self.segment(codes.segment);
        let BlockMap::Flat { size } = blocks else {
            let (mut scales, mut zeros) = ([0.0; RUN], [0.0; RUN]);
            let (scales, zeros) = (&mut scales[..out.len()], &mut zeros[..out.len()]);
            self.spread(blocks, scale, row, col, scales);
            self.spread(blocks, zero, row, col, zeros);
            return vectorized(
                #[inline(always)]
                || {
                    split_runs(bytes, codes, flat, out, |x, code| *x = number(code));
                    let numbers = scales.iter().zip(zeros.iter());
                    for (x, (&scale, &zero)) in out.iter_mut().zip(numbers) {
                        *x = (*x - zero) * scale;
                    }
                },
            );
        };
        let size = size as usize;
        vectorized(
            #[inline(always)]
            || {
                let mut done = 0;
                while done < out.len() {
                    let block = (flat + done) / size;
                    let end = ((block + 1) * size - flat).min(out.len());
                    let (scale, zero) = (self.value(scale, block), self.value(zero, block));
                    let out = &mut out[done..end];
                    split_runs(bytes, codes, flat + done, out, |x, code| {
                        *x = (number(code) - zero) * scale;
                    });
                    done = end;
                }
            },
        );
    }
}

/// A code of at most 8 bits; converting a signed number takes one instruction.
#[inline(always)]
fn number(code: u32) -> f32 {
    code as i32 as f32
}
