//! A product of one launch: operands, output, and what comes of the sums.
#![allow(unsafe_code)] // Disjoint blocks of one output on several threads.

use super::combine::Sums;
use super::rounding::{Addend, Sum, store_block};
use super::source::{Operand, Rows};
use super::tile::Tile;
use super::{Isa, Scalar};
use crate::element::Element;
use crate::split::Parts;

/// Most steps of a low-rank product that is computed by the tasks of the other one.
pub(super) const MOST_LOW_RANK_STEPS: usize = 128;

/// A product of one launch.
pub(super) struct Product<'a, E: Element>
where
    E::Acc: Scalar,
{
    pub isa: Isa,
    pub left: Operand<'a, E::Acc>,
    pub right: Operand<'a, E::Acc>,
    /// The output's elements.
    pub out: Parts<'a, E>,
    /// Elements from one of its rows to the next.
    pub stride: usize,
    /// Where partial sums are added up, and what comes of them.
    pub sums: Sums<'a, E>,
    /// Added to every row before rounding.
    pub bias: Option<&'a dyn Rows<E::Acc>>,
    /// Computed by the same tasks.
    pub low_rank: Option<LowRank<'a, E>>,
}

/// Which of two products goes into the output first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LowRankTurn {
    /// The low-rank one.
    Before,
    /// The other one.
    After,
}

/// A product of low rank beside another one.
#[derive(Clone, Copy)]
pub struct LowRank<'a, E: Element>
where
    E::Acc: Scalar,
{
    /// `[rows, rank]`.
    pub left: Operand<'a, E::Acc>,
    /// `[rank, cols]`.
    pub right: Operand<'a, E::Acc>,
    /// What the output is of it.
    pub sum: Sum<'a, E>,
    /// Whether the output holds the other product by then, or is given to that one.
    pub turn: LowRankTurn,
}

impl<'a, E: Element> LowRank<'a, E>
where
    E::Acc: Scalar,
{
    /// Whether the tasks of the other product can add it.
    pub(super) fn is_of_few_steps(&self, isa: Isa) -> bool {
        let (_, rank) = self.left.size();
        rank > 0 && isa.steps(rank) <= MOST_LOW_RANK_STEPS
    }

    /// Whether it belongs to an output of these rows, columns and elements.
    pub(super) fn fits(&self, [rows, cols]: [usize; 2], len: usize) -> bool {
        let ((left, rank), (right, right_rank)) = (self.left.size(), self.right.size());
        (left, right, right_rank) == (rows, cols, rank) && self.sum.fits(len)
    }
}

impl<E: Element> Product<'_, E>
where
    E::Acc: Scalar,
{
    /// The output from this row and column on.
    ///
    /// # Panics
    /// Where it has none such.
    pub(super) fn block(&self, row: usize, col: usize) -> Tile<E> {
        Tile {
            start: self.out.address(row * self.stride + col),
            stride: self.stride,
        }
    }

    /// Writes `rows` x `cols` sums, and others after them, into the output from this row and column
    /// on. What they are added to begins where the output does.
    ///
    /// # Safety
    /// The sums and the output have the block, and nothing else uses it.
    pub(super) unsafe fn store(
        &self,
        (row, col): (usize, usize),
        (rows, cols): (usize, usize),
        first: &Addend<'_, E>,
        second: Option<&Addend<'_, E>>,
    ) {
        let (start, len) = (row * self.stride + col, (rows - 1) * self.stride + cols);
        let out = self.block(row, col);
        // SAFETY: the caller's promises.
        unsafe {
            let second = second.map(|of| of.from((0, 0), start, len));
            let first = first.from((0, 0), start, len);
            store_block(&first, second.as_ref(), out, (rows, cols));
        }
    }
}
