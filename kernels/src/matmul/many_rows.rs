//! A product of many rows, by all threads: columns of the right operand are packed once for all
//! rows.

use espalier_interface::Services;

use super::block::EDGE;
use super::blocking::{Blocking, MOST_PARTS, one_block_rows};
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
    fn of(blocking: &Blocking, home: SumHome, low_rank: usize) -> Self {
        let rows = blocking.most_rows();
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

/// Bytes of workspace with which products of `cols` columns, at most so many rows and at most so
/// deep run on `threads` threads.
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
        // The most that threads pack together, and the most that each task packs.
        let sizes = [rows, rows.min(one_block_rows(isa, cols, threads))];
        let sizes = sides.flat_map(move |left| sizes.map(|rows| ([rows, cols], left)));
        sizes.map(move |size| {
            let blocking = Blocking::new(size, depth, home, threads);
            let space = Space::of(&blocking, home, 0);
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
        let tile = (blocking.most_rows(), blocking.chunk());
        low_rank::space(product.isa, rank, tile)
    });
    let space = Space::of(&blocking, home, low_rank);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workspace_of_a_product_is_enough_for_fewer_rows_and_less_depth() {
        const ROWS: [usize; 8] = [1, 56, 57, 255, 256, 257, 600, 700];
        const DEPTHS: [usize; 5] = [1, 300, 4096, 4500, 5000];
        let check = |isa, threads, cols, home| {
            let bytes =
                |rows, depth| workspace_bytes::<f32>(isa, threads, [rows, cols, depth], home);
            let most = bytes(700, 5000);
            for (rows, depth) in ROWS
                .iter()
                .flat_map(|&rows| DEPTHS.map(|depth| (rows, depth)))
            {
                let size = [rows, cols, depth];
                assert!(
                    bytes(rows, depth) <= most,
                    "{size:?} with {isa:?} on {threads}, {home:?}"
                );
            }
        };
        for &isa in Isa::available() {
            for (threads, cols) in [1, 2, 5]
                .into_iter()
                .flat_map(|n| [31, 511, 512, 1200].map(|c| (n, c)))
            {
                check(isa, threads, cols, SumHome::Output);
                check(isa, threads, cols, SumHome::Beside);
            }
        }
    }
}
