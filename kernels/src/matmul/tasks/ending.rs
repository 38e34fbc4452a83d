//! Complete sums of a task -> blocks of the output: with a bias, and with a product of low rank.
#![allow(unsafe_code)] // Blocks of an output that threads share.

use crate::added::Added;
use crate::element::Element;
use crate::matmul::Scalar;
use crate::matmul::block::Narrow;
use crate::matmul::product::{LowRank, LowRankTurn, Product};
use crate::matmul::rounding::{Addend, Sum, add_bias};
use crate::matmul::tiles::Lines;

/// What completes a task's sums.
pub(super) struct Ending<'a, E: Element>
where
    E::Acc: Scalar,
{
    pub product: &'a Product<'a, E>,
    /// Added to every row before rounding.
    pub bias: Option<&'a [E::Acc]>,
    /// The product of low rank, packed.
    pub narrow: Option<(&'a LowRank<'a, E>, Narrow<'a, E::Acc>)>,
}

impl<E: Element> Ending<'_, E>
where
    E::Acc: Scalar,
{
    /// The product of low rank, packed.
    pub fn narrow_part(&self) -> Option<&Narrow<'_, E::Acc>> {
        self.narrow.as_ref().map(|(_, part)| part)
    }

    /// The lines that storing sums touches, from this row and column of the output on.
    pub fn lines(&self, (row, col): (usize, usize), sum: Sum<'_, E>) -> [Option<Lines>; 3] {
        let Product { out, stride, .. } = self.product;
        let first = row * stride + col;
        let of = |values: &[E]| Lines::new(values[first..].as_ptr(), *stride);
        let added = match sum.added {
            Added::Values(values) => Some(of(values)),
            Added::Nothing | Added::Output => None,
        };
        let low_rank = self
            .narrow
            .as_ref()
            .and_then(|(low_rank, _)| low_rank.sum.residual);
        let residual = sum.residual.or(low_rank).map(of);
        let to = Lines::new(out.address(first).cast_const(), *stride);
        [Some(to), added, residual]
    }

    /// Stores a block of sums, and that of low rank, in their turns, from this row and column of
    /// the output on, which is column `col` of the task.
    ///
    /// # Safety
    /// The sums of both are complete, and nothing else uses the block.
    pub unsafe fn store(
        &self,
        at: (usize, usize),
        block: (usize, usize),
        product: &Addend<'_, E>,
        col: usize,
    ) {
        let (rows, cols) = block;
        let narrow = self.narrow_sums(col);
        let (first, second) = match &narrow {
            Some((narrow, LowRankTurn::Before)) => (narrow, Some(product)),
            Some((narrow, LowRankTurn::After)) => (product, Some(narrow)),
            None => (product, None),
        };
        // SAFETY: the caller's promises.
        unsafe {
            if let Some(bias) = self.bias {
                add_bias(product.sums, rows, &bias[col..col + cols]);
            }
            self.product.store(at, block, first, second);
        }
    }

    /// The sums of low rank from column `col` of the task on, what comes of them, and when.
    pub fn narrow_sums(&self, col: usize) -> Option<(Addend<'_, E>, LowRankTurn)> {
        let (of, narrow) = self.narrow.as_ref()?;
        let (sums, sum) = (narrow.sums(col), of.sum);
        Some((Addend { sums, sum }, of.turn))
    }
}
