//! Values -> values after a step: with the numbers of their blocks, or outliers in their place.

use espalier_interface::format::{BlockMap, BlockValues, Step};

use super::PackedWeight;
use super::weight::RUN;
use crate::simd::vectorized;

impl PackedWeight<'_> {
    /// Changes at most [`RUN`] values of `row` from `col` on.
    pub(super) fn step(&self, step: &Step, row: usize, col: usize, out: &mut [f32]) {
        let place = (row, col);
        match step {
            Step::Times { blocks, values } => {
                self.with_numbers((*blocks, values), place, out, |x, number| x * number);
            }
            Step::Plus { blocks, values } => {
                self.with_numbers((*blocks, values), place, out, |x, number| x + number);
            }
            Step::Minus { blocks, values } => {
                self.with_numbers((*blocks, values), place, out, |x, number| x - number);
            }
            Step::Outliers {
                size,
                count,
                positions,
                values,
            } => {
                let flat = row * self.shape()[1] as usize + col;
                let blocks = (*size as usize, *count as usize);
                self.outliers(blocks, (*positions, *values), flat, out);
            }
            Step::Hadamard { .. } => unreachable!("a step of whole runs"),
        }
    }

    fn with_numbers(
        &self,
        (blocks, values): (BlockMap, &BlockValues),
        (row, col): (usize, usize),
        out: &mut [f32],
        function: impl Fn(f32, f32) -> f32,
    ) {
        let mut numbers = [0.0; RUN];
        let numbers = &mut numbers[..out.len()];
        self.spread(blocks, values, row, col, numbers);
        vectorized(
            #[inline(always)]
            || {
                for (x, &number) in out.iter_mut().zip(numbers.iter()) {
                    *x = function(*x, number);
                }
            },
        );
    }

    /// Replaces outliers among the elements from `flat` on.
    fn outliers(
        &self,
        (size, count): (usize, usize),
        (positions, values): (usize, usize),
        flat: usize,
        out: &mut [f32],
    ) {
        let positions = self.segment(positions);
        let first = flat / size * count;
        let end = (flat + out.len()).div_ceil(size) * count;
        for (entry, &position) in (first..).zip(&positions[first..end]) {
            let at = (entry / count * size + usize::from(position)).checked_sub(flat);
            let own = at.and_then(|at| out.get_mut(at));
            if let Some(own) = own.filter(|_| usize::from(position) < size) {
                *own = self.number(values, entry);
            }
        }
    }
}
