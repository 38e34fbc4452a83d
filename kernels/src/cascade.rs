//! Vectors of f32 -> their sum, added in the order of torch's CPU sum, so that the last bit agrees.
//!
//! The order depends on the counts alone. With more than one thread, torch splits sums of 32768
//! numbers and more by its thread count. This is its single-thread order.
//!
//! # Source
//! pytorch `aten/src/ATen/native/cpu/SumKernel.cpp`.

/// Columns that are added side by side, of the vector and of the scalar path.
pub const COLUMNS: usize = 4;
/// f32 numbers in one of torch's vectors (it sums with AVX2 width on every x86 CPU).
pub const LANES: usize = 8;
/// Levels of the cascade.
const LEVELS: usize = 4;
/// The shortest run is of `2^LEAST_POWER` rows.
const LEAST_POWER: usize = 4;

/// A row of `COLUMNS` vectors of `N` numbers each.
pub type Row<const N: usize> = [[f32; N]; COLUMNS];

/// A sum of rows: runs of rows are added, then runs of runs, over four levels (torch's
/// `multi_row_sum`).
pub struct Cascade<const N: usize> {
    levels: [Row<N>; LEVELS],
    /// Binary logarithm of the entries in a run.
    power: usize,
    /// Rows added so far.
    rows: usize,
}

impl<const N: usize> Cascade<N> {
    /// The empty sum for `num_rows` rows.
    #[inline(always)]
    pub fn new(num_rows: usize) -> Self {
        Cascade {
            levels: [[[0.0; N]; COLUMNS]; LEVELS],
            power: power(num_rows),
            rows: 0,
        }
    }

    /// Adds the next row.
    #[inline(always)]
    pub fn add_row(&mut self, row: &Row<N>) {
        add_row(&mut self.levels[0], row);
        self.rows += 1;
        if self.ends_run(0) {
            self.carry(0);
        }
    }

    /// Adds the sum of the next `2^(2 power)` rows, a run of runs (see [`power`]). [`add_row`]
    /// computed it from zeros: rows into runs, runs into the block.
    ///
    /// # Panics
    /// Where some rows of a block were added one by one.
    pub fn add_block(&mut self, block: &Row<N>) {
        let rows = 1 << (2 * self.power);
        assert!(self.rows.is_multiple_of(rows), "blocks are added whole");
        add_row(&mut self.levels[2], block);
        self.rows += rows;
        if self.ends_run(2) {
            self.carry(2);
        }
    }

    /// The sum.
    #[inline(always)]
    pub fn total(self) -> Row<N> {
        let [mut total, upper @ ..] = self.levels;
        for level in &upper {
            add_row(&mut total, level);
        }
        total
    }

    fn ends_run(&self, level: usize) -> bool {
        let run = (1 << self.power) - 1;
        self.rows & (run << (level * self.power)) == 0
    }

    /// Moves the run of `level` up, and complete runs above it.
    fn carry(&mut self, level: usize) {
        for upper in level + 1..LEVELS {
            let below = std::mem::replace(&mut self.levels[upper - 1], [[0.0; N]; COLUMNS]);
            add_row(&mut self.levels[upper], &below);
            if !self.ends_run(upper) {
                break;
            }
        }
    }
}

/// Binary logarithm of the rows in a run of a sum of `num_rows` rows.
#[inline(always)]
pub fn power(num_rows: usize) -> usize {
    (ceil_log2(num_rows) / LEVELS).max(LEAST_POWER)
}

/// Adds a row to another, number by number.
#[inline(always)]
pub fn add_row<const N: usize>(sum: &mut Row<N>, x: &Row<N>) {
    for (s, v) in sum.iter_mut().zip(x) {
        add(s, v);
    }
}

/// The sum of `vectors`, number by number (torch's `row_sum`).
#[inline(always)]
pub fn sum_vectors<const N: usize>(vectors: &[[f32; N]]) -> [f32; N] {
    let (rows, rest) = vectors.as_chunks::<COLUMNS>();
    if rows.len() >= 1 << LEAST_POWER {
        let mut cascade = Cascade::new(rows.len());
        for row in rows {
            cascade.add_row(row);
        }
        return join(cascade.total(), rest);
    }
    // A single run: the other levels are zeros.
    let mut run = [[0.0; N]; COLUMNS];
    for row in rows {
        add_row(&mut run, row);
    }
    join(run, rest)
}

/// The columns of a sum of rows and the `rest` of its vectors, fewer than a row, as one vector.
#[inline(always)]
pub fn join<const N: usize>(total: Row<N>, rest: &[[f32; N]]) -> [f32; N] {
    let [mut total, others @ ..] = total;
    for vector in rest.iter().chain(&others) {
        add(&mut total, vector);
    }
    total
}

/// The sum of a vector's numbers and of the `tail` of a list, fewer than a vector.
#[inline(always)]
pub fn sum_lanes<const N: usize>(vector: [f32; N], tail: &[f32]) -> f32 {
    let mut sum = 0.0;
    for x in tail {
        sum += x;
    }
    for x in vector {
        sum += x;
    }
    sum
}

#[inline(always)]
fn add<const N: usize>(sum: &mut [f32; N], x: &[f32; N]) {
    for (s, v) in sum.iter_mut().zip(x) {
        *s += v;
    }
}

fn ceil_log2(n: usize) -> usize {
    if n <= 2 {
        return 1; // As in torch's utils::CeilLog2
    }
    (usize::BITS - (n - 1).leading_zeros()) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks summed separately have the bits of the rows added one by one.
    #[test]
    fn sums_by_blocks_equal_sums_by_rows() {
        let row = |i: usize| -> Row<2> {
            std::array::from_fn(|c| std::array::from_fn(|l| ((i * 7 + c * 3 + l) as f32).sin()))
        };
        for num_rows in [255, 256, 300, 4096 + 256, 16 * 4096 + 3 * 256 + 17] {
            let mut whole = Cascade::new(num_rows);
            (0..num_rows).for_each(|i| whole.add_row(&row(i)));
            let mut parts = Cascade::new(num_rows);
            let block = 1 << (2 * power(num_rows));
            for b in 0..num_rows / block {
                let mut sum = [[0.0; 2]; COLUMNS];
                for run in 0..block / 16 {
                    let mut inner = [[0.0; 2]; COLUMNS];
                    (0..16).for_each(|i| add_row(&mut inner, &row(b * block + run * 16 + i)));
                    add_row(&mut sum, &inner);
                }
                parts.add_block(&sum);
            }
            (num_rows / block * block..num_rows).for_each(|i| parts.add_row(&row(i)));
            assert_eq!(parts.total(), whole.total(), "{num_rows} rows");
        }
    }
}
