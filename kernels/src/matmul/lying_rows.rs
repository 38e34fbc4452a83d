//! Rows of a left operand that kernels read from the operand itself: a panel of them is not packed.

use std::ops::Range;

use half::bf16;

use super::micro::Strides;
use super::source::{Operand, Summed};
use super::{Isa, Scalar};

/// Most columns for which rows are not packed: packing takes as long as multiplying them by one
/// panel, and many panels are multiplied faster by packed rows.
const FEW_COLS: usize = 64;

/// The rows.
#[derive(Clone, Copy)]
pub(super) enum LyingRows<'a, S> {
    /// For vectors, with the elements from one row and from one step to the next.
    Own(&'a [S], Strides),
    /// For tiles, with the elements from one row to the next.
    Tiled(&'a [bf16], usize),
}

impl<'a, S: Scalar> LyingRows<'a, S> {
    /// The rows of an operand where kernels of vectors read them, which `cols` columns are
    /// multiplied by, faster than they are packed.
    ///
    /// Of bf16, those that are summed over columns would be read no faster: each number is widened
    /// by instructions of its own.
    pub fn of(
        isa: Isa,
        operand: Operand<'a, S>,
        (rows, cols): (Range<usize>, usize),
        depth: Range<usize>,
    ) -> Option<Self> {
        if S::kernels(isa).of_lying.is_empty() || depth.is_empty() || cols > FEW_COLS {
            return None;
        }
        let (values, strides) = match operand.summed {
            Summed::Cols => {
                let (values, stride) = operand.source.own_window(rows, depth)?;
                (values, [stride, 1])
            }
            Summed::Rows => {
                let (values, stride) = operand.source.own_window(depth, rows)?;
                (values, [1, stride])
            }
        };
        Some(LyingRows::Own(values, strides))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::Element;
    use crate::matmul::tests::numbers;
    use crate::matmul::{Dense, Update, multiply_into, space};

    const ROWS: usize = 13;
    const DEPTH: usize = 300;
    /// Elements from one row of the operand to the next.
    const STRIDE: usize = 320;
    const MANY: usize = FEW_COLS + 7;

    /// `left right` with the first `cols` columns of `right`, `[DEPTH, MANY]`.
    fn product(isa: Isa, left: Operand<'_, f32>, right: &[f32], cols: usize) -> Vec<f32> {
        let right = Dense::strided(right, DEPTH, cols, MANY);
        let mut out = vec![f32::NAN; ROWS * cols];
        let sides = (left, Operand::over_rows(&right));
        let mut memory = vec![f32::NAN; space::<f32>()];
        multiply_into(isa, sides, (&mut out, cols), Update::Overwrite, &mut memory);
        out
    }

    /// Checks a left operand of `E`, which kernels of some sets read.
    fn check<E: Element>(isa: Isa, reads: bool) {
        let along = numbers::<E>(ROWS * STRIDE, 1);
        let mut across = vec![E::default(); DEPTH * STRIDE];
        for (row, along) in along.chunks(STRIDE).enumerate() {
            for (across, &x) in across.chunks_mut(STRIDE).zip(along) {
                across[row] = x;
            }
        }
        let along = Dense::strided(&along, ROWS, DEPTH, STRIDE);
        let across = Dense::strided(&across, DEPTH, ROWS, STRIDE);
        let right = numbers(DEPTH * MANY, 2);
        let packed = product(isa, Operand::over_rows(&across), &right, MANY);
        for left in [Operand::over_cols(&along), Operand::over_rows(&across)] {
            for cols in [1, 16, 33, FEW_COLS, MANY] {
                let lies = LyingRows::of(isa, left, (0..ROWS, cols), 0..DEPTH).is_some();
                let name = format!("{isa:?}, {}, {:?}, {cols}", E::DTYPE, left.summed);
                assert_eq!(lies, reads && cols <= FEW_COLS, "{name}");
                let lying = product(isa, left, &right, cols);
                for (lying, packed) in lying.chunks(cols).zip(packed.chunks(MANY)) {
                    assert_eq!(lying, &packed[..cols], "{name}");
                }
            }
        }
    }

    #[test]
    fn rows_have_the_same_products_where_they_lie_as_packed() {
        for &isa in Isa::available().iter().filter(|isa| !isa.has_tiles()) {
            check::<f32>(isa, isa == isa.vectors());
            check::<bf16>(isa, false);
        }
    }
}
