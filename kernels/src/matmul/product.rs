//! Operands and an output -> the product, by all threads: columns of the right operand are packed
//! once for all rows.
#![allow(unsafe_code)] // Disjoint parts of one output and of one workspace on several threads.

use std::ops::Range;

use espalier_interface::Services;

use super::block::{DEPTH, Depth, EDGE};
use super::blocking::{Blocking, TASK_ROWS};
use super::combine::{SumHome, Sums};
use super::panel::{STRIP, TAIL};
use super::pipeline::{BUFFERS, Order, Pipeline, Task};
use super::slots::{self, Slots};
use super::source::{Operand, Rows};
use super::tasks::Shared;
use super::{Isa, Scalar};
use crate::element::Element;
use crate::split::Parts;

/// Elements between the end of a row of sums and the next row, so that rows do not share their
/// places in a cache.
pub(super) const ROW_GAP: usize = 16;

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

/// Elements of the scalar in a product's workspace.
struct Space {
    /// Packed columns of the units that are in memory at once.
    packed: usize,
    /// Sums that are kept from pass to pass.
    kept: usize,
    /// What each thread needs.
    share: usize,
}

impl Space {
    fn of(blocking: &Blocking, home: SumHome) -> Self {
        let sums = match home {
            SumHome::Beside if !blocking.keeps_sums() => {
                TASK_ROWS * (blocking.sum_cols() + ROW_GAP)
            }
            SumHome::Beside | SumHome::Output => 0,
        };
        Space {
            packed: blocking.units().min(BUFFERS) * blocking.packed(),
            kept: blocking.kept_rows() * (blocking.chunk() + ROW_GAP),
            share: STRIP
                + TASK_ROWS * DEPTH
                + TAIL
                + EDGE
                + blocking.own_cols() * DEPTH
                + blocking.chunk()
                + sums,
        }
    }
}

/// Bytes of workspace with which products of at most `[rows, cols, depth]` run on `threads` threads.
pub(super) fn workspace_bytes<E: Element>(
    isa: Isa,
    threads: usize,
    [rows, cols, depth]: [usize; 3],
    home: SumHome,
) -> usize
where
    E::Acc: Scalar,
{
    let depth = Depth::new(isa, depth);
    let sizes = depth.shallower().flat_map(|depth| {
        [rows, rows.min(TASK_ROWS)].map(|rows| {
            let blocking = Blocking::new([rows, cols], depth, home, threads);
            let space = Space::of(&blocking, home);
            slots::bytes::<E::Acc>(space.packed + space.kept, space.share, threads)
        })
    });
    sizes.max().unwrap_or(0)
}

impl<E: Element> Product<'_, E>
where
    E::Acc: Scalar,
{
    /// Computes all of it.
    ///
    /// # Panics
    /// Where the workspace is too small for one thread.
    pub fn run(&self, services: &dyn Services, workspace: &mut [u8]) {
        let ((rows, elements), (cols, _)) = (self.left.size(), self.right.size());
        let depth = Depth::new(self.isa, elements);
        let home = self.sums.home();
        let blocking = Blocking::new([rows, cols], depth, home, services.threads());
        let space = Space::of(&blocking, home);
        let order = Order {
            units: blocking.units(),
            packs: blocking.packs(self.right.summed),
            products: blocking.tasks(),
            chained: blocking.passes() > 1,
        };
        let most = if blocking.is_small() {
            1
        } else {
            order.tasks().min(services.threads())
        };
        let shared = space.packed + space.kept;
        let (shared, slots) = Slots::<E::Acc>::new(workspace, shared, space.share, most);
        let (packed, kept) = shared.split_at_mut(space.packed);
        let shared = Shared {
            product: self,
            depth,
            blocking,
            packed: Parts::new(packed),
            kept: Parts::new(kept),
        };
        let pipeline = Pipeline::new(order);
        slots.run(services, |memory| {
            pipeline.run(|task| match task {
                Task::Pack { unit, idx } => shared.pack(unit, idx, memory),
                Task::Multiply { unit, idx } => shared.multiply(unit, idx, memory),
            });
        });
    }

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
