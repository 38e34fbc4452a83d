//! A product of one launch: operands, output, and what comes of the sums.
#![allow(unsafe_code)] // Disjoint parts of one output on several threads.

use std::ops::Range;

use super::combine::Sums;
use super::source::{Operand, Rows};
use super::{Isa, Scalar};
use crate::element::Element;
use crate::split::Parts;

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
}

impl<E: Element> Product<'_, E>
where
    E::Acc: Scalar,
{
    /// Elements of row `row` in `cols` of the output.
    ///
    /// # Safety
    /// No other live range has them.
    #[allow(clippy::mut_from_ref)]
    pub(super) unsafe fn row(&self, row: usize, cols: Range<usize>) -> &mut [E] {
        // SAFETY: the caller's promise.
        unsafe { self.out.part(row * self.stride + cols.start, cols.len()) }
    }
}
