//! Codes of an affine format -> values: `(code - zero[block]) * scale[block]`. Split codes are read
//! in one pass over the words of a slot.

use espalier_interface::format::{BitOrder, BlockMap, BlockValues, Codes};

use super::PackedWeight;
use super::codes::split_runs;
use super::weight::{COUNT, RUN, SMALL_BLOCK};
use crate::simd::vectorized;

impl PackedWeight<'_> {
    /// Decodes at most [`RUN`] elements of `row` from `col` on.
    pub(super) fn affine(
        &self,
        codes: &Codes,
        blocks: BlockMap,
        [scale, zero]: [&BlockValues; 2],
        (row, col): (usize, usize),
        out: &mut [f32],
    ) {
        if matches!(codes.order, BitOrder::Split { .. }) {
            return self.split_affine(codes, blocks, [scale, zero], (row, col), out);
        }
        if let Some(size) = self.piece(blocks).filter(|&size| size > SMALL_BLOCK)
            && codes.bits <= 4
        {
            let flat = row * self.shape()[1] as usize + col;
            let (mut scales, mut zeros, run) = ([0.0; RUN], [0.0; RUN], (size, out.len()));
            let scales = self.numbers_of_run(scale, (0, flat), run, &mut scales);
            let zeros = self.numbers_of_run(zero, (0, flat), run, &mut zeros);
            return self.block_tables(codes, size, flat, out, |block| {
                COUNT.map(|code| (code - zeros[block]) * scales[block])
            });
        }
        self.numbers(codes, row, col, out);
        let (mut scales, mut zeros) = ([0.0; RUN], [0.0; RUN]);
        let (scales, zeros) = (&mut scales[..out.len()], &mut zeros[..out.len()]);
        self.spread(blocks, scale, row, col, scales);
        self.spread(blocks, zero, row, col, zeros);
        vectorized(
            #[inline(always)]
            || {
                let numbers = scales.iter().zip(zeros.iter());
                for (x, (&scale, &zero)) in out.iter_mut().zip(numbers) {
                    *x = (*x - zero) * scale;
                }
            },
        );
    }

    /// The same of split codes.
    ///
    /// # Panics
    /// Where the codes are not split.
    fn split_affine(
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
