//! Axis 0: the zeros of groups whose weights are a row apart.

use espalier_kernels::cascade::{Cascade, LANES, Row, sum_vectors};

use super::{Reach, Stripe, residual, residual_with_rest};
use crate::shrink::Shrinking;
use crate::start::{larger, smaller};

/// Groups that are summed side by side: a row of the cascade.
const WIDTH: usize = 4 * LANES;

/// Computes the zeros of a run of iterations, [RUN + 1][groups of the stripe], from the first.
#[inline(always)]
pub fn advance(stripe: &Stripe, zeros: &mut [&mut [f32]]) {
    let count = stripe.problem.groups.count;
    // The rows of a block are a power of two apart, which conflicts in the caches: a copy avoids
    // that.
    let mut block = vec![[0.0; WIDTH]; stripe.problem.groups.size];
    for at in (0..stripe.scale.len()).step_by(WIDTH) {
        let width = WIDTH.min(stripe.scale.len() - at);
        let first = stripe.first + at;
        copy(stripe, first, width, &mut block);
        let (low, high) = ends(&block);
        for (iteration, &shrinking) in stripe.steps.iter().enumerate() {
            let (before, after) = zeros.split_at_mut(iteration + 1);
            let mut lanes = Lanes {
                count,
                top: stripe.problem.top,
                scale: [1.0; WIDTH],
                zero: [0.0; WIDTH],
                shrinking: None,
            };
            lanes.scale[..width].copy_from_slice(&stripe.scale[at..at + width]);
            lanes.zero[..width].copy_from_slice(&before[iteration][at..at + width]);
            lanes.heed(&low, &high, shrinking);
            lanes.means(&block, &mut after[0][at..at + width]);
        }
    }
}

/// Copies the weights of the `width` groups from `first` on.
#[inline(always)]
fn copy(stripe: &Stripe, first: usize, width: usize, block: &mut [[f32; WIDTH]]) {
    let rows = stripe
        .problem
        .weight
        .chunks_exact(stripe.problem.groups.count);
    for (copy, row) in block.iter_mut().zip(rows) {
        let row = &row[first..first + width];
        match <&[f32; WIDTH]>::try_from(row) {
            Ok(row) => *copy = *row,
            Err(_) => copy[..width].copy_from_slice(row),
        }
    }
}

/// The smallest and the largest weight of each group.
#[inline(always)]
fn ends(block: &[[f32; WIDTH]]) -> ([f32; WIDTH], [f32; WIDTH]) {
    let (mut low, mut high) = ([f32::INFINITY; WIDTH], [f32::NEG_INFINITY; WIDTH]);
    for row in block {
        for i in 0..WIDTH {
            low[i] = smaller(low[i], row[i]);
            high[i] = larger(high[i], row[i]);
        }
    }
    (low, high)
}

/// Up to `WIDTH` groups side by side in an iteration.
struct Lanes {
    /// Groups of the weight.
    count: usize,
    top: f32,
    scale: [f32; WIDTH],
    zero: [f32; WIDTH],
    /// Set where errors may not shrink to zero.
    shrinking: Option<Shrinking>,
}

impl Lanes {
    #[inline(always)]
    fn heed(&mut self, low: &[f32; WIDTH], high: &[f32; WIDTH], shrinking: Shrinking) {
        let mut remains = false;
        for i in 0..WIDTH {
            let reach = Reach {
                low: low[i],
                high: high[i],
            };
            remains |= reach.remains(self.scale[i], self.zero[i], self.top, shrinking);
        }
        self.shrinking = remains.then_some(shrinking);
    }

    /// The means of the residuals of each group; `block` is `[size, WIDTH]`.
    #[inline(always)]
    fn means(&self, block: &[[f32; WIDTH]], means: &mut [f32]) {
        let size = block.len() as f32;
        if means.len() == WIDTH {
            let mut sum = Cascade::new(block.len());
            // Plain loops: iterators are compiled for any processor.
            match self.shrinking {
                None => {
                    for row in block {
                        sum.add_row(&self.plain(row));
                    }
                }
                Some(shrinking) => {
                    for row in block {
                        sum.add_row(&self.with_rest(row, shrinking));
                    }
                }
            }
            for (mean, sum) in means.iter_mut().zip(sum.total().as_flattened()) {
                *mean = sum / size;
            }
        } else {
            let residuals = |row| match self.shrinking {
                None => self.plain(row),
                Some(shrinking) => self.with_rest(row, shrinking),
            };
            for (lane, mean) in means.iter_mut().enumerate() {
                let column = block.iter().map(|row| residuals(row).as_flattened()[lane]);
                *mean = self.sum_column(lane, &column.collect::<Vec<_>>()) / size;
            }
        }
    }

    #[inline(always)]
    fn plain(&self, row: &[f32; WIDTH]) -> Row<LANES> {
        let mut residuals = [[0.0; LANES]; 4];
        for (i, r) in residuals.as_flattened_mut().iter_mut().enumerate() {
            *r = residual(row[i], self.scale[i], self.zero[i], self.top);
        }
        residuals
    }

    #[inline(always)]
    fn with_rest(&self, row: &[f32; WIDTH], shrinking: Shrinking) -> Row<LANES> {
        let mut residuals = [[0.0; LANES]; 4];
        for (i, r) in residuals.as_flattened_mut().iter_mut().enumerate() {
            *r = residual_with_rest(row[i], self.scale[i], self.zero[i], self.top, shrinking);
        }
        residuals
    }

    /// torch adds the columns beyond the last whole row of vectors one by one, in another order.
    /// With fewer columns than a vector has numbers, it adds all whole fours side by side.
    fn sum_column(&self, lane: usize, column: &[f32]) -> f32 {
        if self.count < LANES && lane < self.count / 4 * 4 {
            let mut sum = Cascade::<1>::new(column.len());
            for &x in column {
                sum.add_row(&[[x], [0.0], [0.0], [0.0]]);
            }
            return sum.total()[0][0];
        }
        sum_vectors(column.as_chunks::<1>().0)[0]
    }
}
