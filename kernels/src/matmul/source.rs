//! A matrix in memory, in any dtype or packed -> windows of it in the scalar of products.

use std::ops::Range;

use half::bf16;

use super::Scalar;
use super::nibbles::Nibbles;
use crate::element::{Element, convert_real};
use crate::simd::vectorized;

/// A matrix `[rows, cols]` that a product reads window by window.
pub trait Rows<S: Scalar>: Sync {
    /// Rows and columns.
    fn size(&self) -> (usize, usize);

    /// The values of `rows` x `cols`: element `(i, j)` of the window is `values[i * stride + j]` of
    /// the returned `(values, stride)`.
    ///
    /// They are in the matrix itself where it holds `S`, else in `scratch`, which has room for at
    /// least as many elements as the window. A value must not depend on the requested window.
    fn window<'a>(
        &'a self,
        rows: Range<usize>,
        cols: Range<usize>,
        scratch: &'a mut [S],
    ) -> (&'a [S], usize);

    /// As [`Rows::window`], where the matrix itself holds `S`.
    fn own_window(&self, _rows: Range<usize>, _cols: Range<usize>) -> Option<(&[S], usize)> {
        None
    }

    /// As [`Rows::window`], where the matrix itself holds bf16: its values and their stride.
    fn bf16_window(&self, _rows: Range<usize>, _cols: Range<usize>) -> Option<(&[bf16], usize)> {
        None
    }

    /// The codes of the matrix, where it is packed in one of the formats of [`Nibbles`].
    fn nibbles(&self) -> Option<Nibbles<'_>> {
        None
    }
}

/// A matrix of plain numbers, `[rows, cols]`, each row contiguous.
#[derive(Clone, Copy, Debug)]
pub struct Dense<'a, E> {
    data: &'a [E],
    rows: usize,
    cols: usize,
    stride: usize,
}

impl<'a, E: Element> Dense<'a, E> {
    /// `data` as `[rows, cols]`, row after row.
    ///
    /// # Panics
    /// Where `data` has another number of elements.
    pub fn new(data: &'a [E], rows: usize, cols: usize) -> Self {
        assert_eq!(
            data.len(),
            rows * cols,
            "a matrix's elements and shape differ"
        );
        Dense {
            data,
            rows,
            cols,
            stride: cols,
        }
    }

    /// `[rows, cols]` with `stride` elements from one row to the next, the first at `data[0]`.
    ///
    /// # Panics
    /// Where `data` ends before the last row does, or rows overlap.
    pub fn strided(data: &'a [E], rows: usize, cols: usize, stride: usize) -> Self {
        assert!(stride >= cols, "a matrix's rows overlap");
        assert!(
            rows == 0 || data.len() >= (rows - 1) * stride + cols,
            "a matrix's elements end before its last row"
        );
        Dense {
            data,
            rows,
            cols,
            stride,
        }
    }
}

impl<S: Scalar, E: Element> Rows<S> for Dense<'_, E> {
    fn size(&self) -> (usize, usize) {
        (self.rows, self.cols)
    }

    #[inline]
    fn window<'a>(
        &'a self,
        rows: Range<usize>,
        cols: Range<usize>,
        scratch: &'a mut [S],
    ) -> (&'a [S], usize) {
        if let Some(own) = self.own_window(rows.clone(), cols.clone()) {
            return own;
        }
        let width = cols.len();
        vectorized(
            #[inline(always)]
            || {
                for (row, out) in rows.zip(scratch.chunks_exact_mut(width)) {
                    let start = row * self.stride + cols.start;
                    for (out, x) in out.iter_mut().zip(&self.data[start..start + width]) {
                        *out = convert_real(x.load());
                    }
                }
            },
        );
        (scratch, width)
    }

    #[inline]
    fn own_window(&self, rows: Range<usize>, cols: Range<usize>) -> Option<(&[S], usize)> {
        let data = same::<E, S>(self.data)?;
        Some((&data[rows.start * self.stride + cols.start..], self.stride))
    }

    #[inline]
    fn bf16_window(&self, rows: Range<usize>, cols: Range<usize>) -> Option<(&[bf16], usize)> {
        let data = same::<E, bf16>(self.data)?;
        Some((&data[rows.start * self.stride + cols.start..], self.stride))
    }
}

/// `data` itself where `A` is `B`.
#[inline(always)]
#[allow(unsafe_code)] // A cast between equal types, which generic code cannot express otherwise.
pub(crate) fn same<A: Element, B: Element>(data: &[A]) -> Option<&[B]> {
    // SAFETY: dtypes with equal ids are the same type.
    (A::DTYPE == B::DTYPE)
        .then(|| unsafe { std::slice::from_raw_parts(data.as_ptr().cast(), data.len()) })
}

/// A matrix as one side of a product.
pub struct Operand<'a, S> {
    /// The source of its values.
    pub source: &'a dyn Rows<S>,
    /// The dimension that is summed over.
    pub summed: Summed,
}

impl<S> Clone for Operand<'_, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S> Copy for Operand<'_, S> {}

/// The side of an operand that a product sums over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Summed {
    /// Along each row: the left matrix of `A B` as it is, the right one transposed.
    Cols,
    /// Down each column: the right matrix of `A B` as it is, the left one transposed.
    Rows,
}

impl<'a, S: Scalar> Operand<'a, S> {
    /// `source`, summed over its columns.
    pub fn over_cols(source: &'a dyn Rows<S>) -> Self {
        Operand {
            source,
            summed: Summed::Cols,
        }
    }

    /// `source`, summed over its rows.
    pub fn over_rows(source: &'a dyn Rows<S>) -> Self {
        Operand {
            source,
            summed: Summed::Rows,
        }
    }

    /// (elements that stay, elements summed over).
    pub fn size(&self) -> (usize, usize) {
        let (rows, cols) = self.source.size();
        match self.summed {
            Summed::Cols => (rows, cols),
            Summed::Rows => (cols, rows),
        }
    }
}
