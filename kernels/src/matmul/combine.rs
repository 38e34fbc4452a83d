//! A product's sums -> its output: where they are added up, and what comes of them.

use super::depth::Depth;
use super::rounding::Sum;
use super::{Isa, Scalar, Update};
use crate::added::Added;
use crate::element::Element;

/// How an output comes of a product.
#[derive(Clone, Copy, Debug)]
pub enum Combine<'a, E> {
    /// It is a multiple of the rounded product, to which something may be added.
    Sum(Sum<'a, E>),
    /// Every partial sum is added to it; with tiles, which make one sum, that one. It has the dtype
    /// of sums.
    Accumulate,
}

impl<E: Copy> Combine<'_, E> {
    /// The product alone.
    pub const PRODUCT: Self = Combine::Sum(Sum::PRODUCT);
}

/// Where the partial sums of a product are added up.
#[derive(Clone, Copy)]
pub(super) enum Sums<'a, E> {
    /// In the output.
    InOutput(Update),
    /// Beside it: the output is written once they are complete.
    Beside(Sum<'a, E>),
}

impl<E> Sums<'_, E> {
    /// Where partial sums are added up.
    pub fn home(&self) -> SumHome {
        match self {
            Sums::InOutput(_) => SumHome::Output,
            Sums::Beside(_) => SumHome::Beside,
        }
    }
}

impl<'a, E: Element> Combine<'a, E>
where
    E::Acc: Scalar,
{
    /// Where the sums of products of `depth` by `isa` are added up, which may be `alone`: without
    /// bias and product of low rank.
    pub(super) fn sums(self, isa: Isa, depth: usize, alone: bool) -> Sums<'a, E> {
        let home = SumHome::of::<E>(isa);
        match self {
            Combine::Accumulate => {
                assert!(
                    E::DTYPE == E::Acc::DTYPE,
                    "a narrow output holds no partial sums"
                );
                match home {
                    SumHome::Output => Sums::InOutput(Update::Accumulate),
                    SumHome::Beside => Sums::Beside(Sum {
                        added: Added::Output,
                        ..Sum::PRODUCT
                    }),
                }
            }
            Combine::Sum(sum) if home == SumHome::Output && sum.alpha == 1.0 => {
                match sum.added {
                    _ if sum.residual.is_some() => Sums::Beside(sum),
                    Added::Nothing => Sums::InOutput(Update::Overwrite),
                    // The only sum is added as it is.
                    Added::Output if is_one_sum(isa, depth) && alone => {
                        Sums::InOutput(Update::Accumulate)
                    }
                    _ => Sums::Beside(sum),
                }
            }
            Combine::Sum(sum) => Sums::Beside(sum),
        }
    }
}

/// The memory in which partial sums are added up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SumHome {
    /// The output's, which has their dtype.
    Output,
    /// Memory beside it.
    Beside,
}

impl SumHome {
    /// Where sums of outputs of `E` by `isa` are, unless they are added to something. Tiles are
    /// stored near each other: rows of a wide output lie on as many pages.
    pub fn of<E: Element>(isa: Isa) -> Self {
        if E::DTYPE == E::Acc::DTYPE && !isa.has_tiles() {
            SumHome::Output
        } else {
            SumHome::Beside
        }
    }
}

/// True where products of this depth by `isa` are one partial sum.
fn is_one_sum(isa: Isa, depth: usize) -> bool {
    depth > 0 && Depth::new(isa, depth).parts() == 1
}
