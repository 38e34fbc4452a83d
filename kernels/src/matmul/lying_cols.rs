//! Columns of a right operand that kernels read from the operand itself: a panel of them is not
//! packed.

use std::ops::Range;

use super::source::{Operand, Summed};
use super::{Isa, Scalar};

/// Most rows for which columns are not packed: packing them takes half as long as multiplying three
/// panels of rows by them.
const FEW_ROWS: usize = 18;

/// The columns, a row of the operand each step, and the elements from one step to the next.
#[derive(Clone, Copy)]
pub(super) struct LyingCols<'a, S>(pub &'a [S], pub usize);

impl<'a, S: Scalar> LyingCols<'a, S> {
    /// The columns of an operand where kernels read them, which `rows` rows are multiplied by,
    /// faster than they are packed. They fill whole vectors.
    pub fn of(
        isa: Isa,
        operand: Operand<'a, S>,
        (rows, cols): (usize, Range<usize>),
        depth: Range<usize>,
    ) -> Option<Self> {
        if isa.has_tiles() {
            return None;
        }
        let kernels = S::kernels(isa);
        let are_read = rows <= FEW_ROWS
            && !kernels.of_lying_cols.is_empty()
            && cols.len().is_multiple_of(kernels.lanes);
        if !are_read || depth.is_empty() || operand.summed == Summed::Cols {
            return None;
        }
        let (values, stride) = operand.source.own_window(depth, cols)?;
        Some(LyingCols(values, stride))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matmul::tests::numbers;
    use crate::matmul::threads::Threads;
    use crate::matmul::{
        Combine, Dense, Output, Update, matmul, multiply_into, space, workspace_bytes,
    };

    const DEPTH: usize = 300;
    /// Elements from one row of the operand to the next.
    const STRIDE: usize = 90;

    /// Fails where the product of `rows` rows by `cols` columns has other bits than packed.
    fn check(isa: Isa, rows: usize, cols: usize) {
        // Nothing lies behind the last column.
        let len = (DEPTH - 1) * STRIDE + cols;
        let (left, right) = (numbers::<f32>(DEPTH * rows, 1), numbers::<f32>(len, 2));
        let left = Dense::new(&left, DEPTH, rows);
        let right = Dense::strided(&right, DEPTH, cols, STRIDE);
        let sides = (Operand::over_rows(&left), Operand::over_rows(&right));
        let mut packed = vec![f32::NAN; rows * cols];
        let mut memory = vec![f32::NAN; space::<f32>()];
        multiply_into(
            isa,
            sides,
            (&mut packed, cols),
            Update::Overwrite,
            &mut memory,
        );
        for threads in [1, 2] {
            let mut lying = vec![f32::NAN; rows * cols];
            let output = Output {
                values: &mut lying[..],
                stride: cols,
                combine: Combine::PRODUCT,
                bias: None,
            };
            let mut space = vec![0; workspace_bytes::<f32>(isa, threads, [rows, cols, DEPTH])];
            let (left, right) = sides;
            matmul(isa, &Threads(threads), left, right, output, &mut space);
            assert_eq!(lying, packed, "{isa:?}, {rows} x {cols}, {threads} threads");
        }
    }

    #[test]
    fn columns_have_the_same_products_where_they_lie_as_packed() {
        for &isa in Isa::available() {
            // Products of f32 have no instructions for bf16.
            let isa = isa.vectors();
            for (rows, cols) in [(13, 8), (16, 40), (18, 88), (FEW_ROWS + 1, 40), (16, 41)] {
                check(isa, rows, cols);
            }
        }
    }

    #[test]
    fn columns_of_whole_vectors_are_read_where_they_lie() {
        let values: Vec<f32> = numbers(DEPTH * STRIDE, 1);
        let (across, along) = (
            Dense::strided(&values, DEPTH, 80, STRIDE),
            Dense::strided(&values, 80, DEPTH, DEPTH),
        );
        let lies = |operand, rows, cols| {
            LyingCols::<f32>::of(Isa::Portable, operand, (rows, cols), 0..DEPTH).is_some()
        };
        assert!(lies(Operand::over_rows(&across), FEW_ROWS, 8..40));
        assert!(!lies(Operand::over_rows(&across), FEW_ROWS + 1, 8..40));
        assert!(!lies(Operand::over_rows(&across), FEW_ROWS, 8..41));
        assert!(!lies(Operand::over_cols(&along), FEW_ROWS, 8..40));
    }
}
