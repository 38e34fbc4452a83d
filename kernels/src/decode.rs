//! Packed weights -> windows of f32 values, as products read them.

mod affine;
mod blocks;
mod callback;
mod codes;
mod format;
mod hadamard;
mod small_blocks;
mod steps;
mod vectors;
mod weight;
mod wide_codes;

use std::ops::Range;

pub use callback::CallbackDecoder;
pub use format::FormatDecoder;
pub use weight::PackedWeight;

use crate::element::convert_real;
use crate::matmul::{Nibbles, Rows, Scalar};

/// A packed weight that decodes any window, on many threads at once.
pub trait TileDecoder: Sync {
    /// Rows and columns of the weight.
    fn size(&self) -> (usize, usize);

    /// Writes the values of `rows` x `cols` to `out`, `[rows.len(), cols.len()]`, row major.
    ///
    /// A value must not depend on the requested window.
    fn decode(&self, rows: Range<usize>, cols: Range<usize>, out: &mut [f32]);

    /// The codes of the weight, where it is in one of the formats of [`Nibbles`].
    fn nibbles(&self) -> Option<Nibbles<'_>> {
        None
    }
}

/// A packed weight as a matrix of f32 values, or of the same values in f64.
#[derive(Clone, Copy)]
pub struct Packed<'a>(pub &'a dyn TileDecoder);

impl<S: Scalar> Rows<S> for Packed<'_> {
    fn size(&self) -> (usize, usize) {
        self.0.size()
    }

    fn window<'a>(
        &'a self,
        rows: Range<usize>,
        cols: Range<usize>,
        scratch: &'a mut [S],
    ) -> (&'a [S], usize) {
        let width = cols.len();
        let out = &mut scratch[..rows.len() * width];
        if let Some(out) = S::as_f32(out) {
            self.0.decode(rows, cols, out);
            return (scratch, width);
        }
        // The reference mode: some columns at a time, through a buffer on the stack.
        let mut decoded = [0.0f32; 256];
        for (row, out) in rows.zip(out.chunks_exact_mut(width)) {
            for (start, out) in (cols.start..).step_by(256).zip(out.chunks_mut(256)) {
                let decoded = &mut decoded[..out.len()];
                self.0
                    .decode(row..row + 1, start..start + out.len(), decoded);
                for (out, &x) in out.iter_mut().zip(decoded.iter()) {
                    *out = convert_real(x);
                }
            }
        }
        (scratch, width)
    }

    fn nibbles(&self) -> Option<Nibbles<'_>> {
        self.0.nibbles()
    }
}
