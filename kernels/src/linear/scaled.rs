//! Tokens -> a multiple of them, which a product reads window by window.

use std::ops::Range;

use crate::element::{Element, convert_real};
use crate::matmul::{Rows, Scalar};
use crate::simd::vectorized;

/// `alpha` times a matrix, row after row. Where alpha is a power of two, its elements are numbers
/// of the matrix's own dtype.
pub(super) struct Scaled<'a, E> {
    pub values: &'a [E],
    /// Rows and columns.
    pub size: (usize, usize),
    pub alpha: f64,
}

impl<S: Scalar, E: Element> Rows<S> for Scaled<'_, E> {
    fn size(&self) -> (usize, usize) {
        self.size
    }

    fn window<'a>(
        &'a self,
        rows: Range<usize>,
        cols: Range<usize>,
        scratch: &'a mut [S],
    ) -> (&'a [S], usize) {
        let (width, alpha) = (cols.len(), S::from_f64(self.alpha));
        vectorized(
            #[inline(always)]
            || {
                for (row, out) in rows.zip(scratch.chunks_exact_mut(width)) {
                    let start = row * self.size.1 + cols.start;
                    for (out, x) in out.iter_mut().zip(&self.values[start..start + width]) {
                        let x: S = convert_real(x.load());
                        *out = alpha * x;
                    }
                }
            },
        );
        (scratch, width)
    }
}
