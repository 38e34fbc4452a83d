//! A product of many rows, by all threads: columns of the right operand are packed once for all
//! rows.

use espalier_interface::Services;

use super::block::EDGE;
use super::blocking::{Blocking, MOST_PARTS, task_rows};
use super::combine::SumHome;
use super::depth::{DEPTH, Depth};
use super::low_rank;
use super::panel::{STRIP, TAIL};
use super::pipeline::{BUFFERS, Order, Pipeline, Task};
use super::product::Product;
use super::slots::{self, Slots};
use super::source::Summed;
use super::task_space::ROW_GAP;
use super::tasks::Shared;
use super::{Isa, Scalar};
use crate::element::Element;
use crate::split::Parts;

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
    fn of(isa: Isa, blocking: &Blocking, home: SumHome, low_rank: usize) -> Self {
        let rows = task_rows(isa);
        let sums = match home {
            SumHome::Beside if !blocking.keeps_sums() => rows * (blocking.sum_cols() + ROW_GAP),
            SumHome::Beside | SumHome::Output => 0,
        };
        Space {
            packed: blocking.units().min(BUFFERS) * blocking.packed(),
            kept: blocking.kept_rows() * (blocking.chunk() + ROW_GAP),
            share: STRIP
                + rows * DEPTH
                + TAIL
                + EDGE
                + blocking.own_cols() * DEPTH
                + blocking.chunk()
                + low_rank
                + sums,
        }
    }
}

/// Bytes of workspace with which products of at most `[rows, cols, depth]` run on `threads`
/// threads.
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
    let sizes = depth.shallower(MOST_PARTS + 1).flat_map(|depth| {
        let sides = [Summed::Cols, Summed::Rows].into_iter();
        let sizes =
            sides.flat_map(|left| [rows, rows.min(task_rows(isa))].map(|rows| (rows, left)));
        sizes.map(move |(rows, left)| {
            let blocking = Blocking::new(([rows, cols], left), depth, home, threads);
            let space = Space::of(isa, &blocking, home, 0);
            slots::bytes::<E::Acc>(space.packed + space.kept, space.share, threads)
        })
    });
    sizes.max().unwrap_or(0)
}

/// Computes all of a product.
///
/// # Panics
/// Where the workspace is too small for one thread.
pub(super) fn multiply<E: Element>(
    product: &Product<'_, E>,
    services: &dyn Services,
    workspace: &mut [u8],
) where
    E::Acc: Scalar,
{
    let ((rows, elements), (cols, _)) = (product.left.size(), product.right.size());
    let depth = Depth::new(product.isa, elements);
    let home = product.sums.home();
    let sizes = ([rows, cols], product.left.summed);
    let blocking = Blocking::new(sizes, depth, home, services.threads());
    let low_rank = product.low_rank.map_or(0, |of| {
        let (_, rank) = of.left.size();
        low_rank::space(product.isa, rank, blocking.chunk())
    });
    let space = Space::of(product.isa, &blocking, home, low_rank);
    let order = Order {
        units: blocking.units(),
        packs: blocking.packs(product.right.summed),
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
        product,
        depth,
        blocking,
        packed: Parts::new(packed),
        kept: Parts::new(kept),
        low_rank,
        threads: most,
    };
    let pipeline = Pipeline::new(order);
    slots.run(services, |memory| {
        pipeline.run(|task| match task {
            Task::Pack { unit, idx } => shared.pack(unit, idx, memory),
            Task::Multiply { unit, idx } => shared.multiply(unit, idx, memory),
        });
    });
}
