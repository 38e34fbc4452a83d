//! Zeros of some iterations -> the mean error of the whole weight in each.

use std::sync::Mutex;

use espalier_kernels::cascade::{Cascade, LANES, Row, add_row, join, power, sum_lanes};
use espalier_kernels::simd::vectorized;

use super::RUN;
use crate::code::code;
use crate::grouping::Affine;
use crate::problem::Problem;

/// Numbers in a row of the cascade.
const WIDTH: usize = 4 * LANES;

/// How a sum over a weight is cut, in numbers: runs of rows, and blocks of runs.
#[derive(Clone, Copy)]
struct Cut {
    run: usize,
    block: usize,
}

impl Cut {
    fn of(elements: usize) -> Self {
        let power = power(elements / WIDTH);
        Cut {
            run: WIDTH << power,
            block: WIDTH << (2 * power),
        }
    }
}

/// Numbers of partial sums that a weight of `elements` numbers needs.
pub fn count_sums(elements: usize) -> usize {
    elements / Cut::of(elements).block * RUN * WIDTH
}

/// Adds up the errors of each block in each iteration of a run: `sums`, [blocks, RUN, 32].
pub fn add_up(problem: &Problem, scale: &[f32], zeros: &[f32], sums: &mut [f32]) {
    let cut = Cut::of(problem.groups.elements());
    let blocks: Vec<Mutex<&mut [f32]>> =
        sums.chunks_exact_mut(RUN * WIDTH).map(Mutex::new).collect();
    problem.services.parallel_for(blocks.len(), &|i| {
        if problem.services.cancelled() {
            return;
        }
        let mut sums = blocks[i].lock().expect("each block is taken once");
        vectorized(
            #[inline(always)]
            || add_up_block(problem, scale, zeros, (i * cut.block, cut), &mut sums),
        );
    });
}

#[inline(always)]
fn add_up_block(
    problem: &Problem,
    scale: &[f32],
    zeros: &[f32],
    (first, cut): (usize, Cut),
    sums: &mut [f32],
) {
    let mut errors = vec![0.0; cut.run];
    let mut totals = [[[0.0; LANES]; 4]; RUN];
    for at in (first..first + cut.block).step_by(cut.run) {
        let zeros = zeros.chunks_exact(problem.groups.count);
        for (zero, total) in zeros.zip(&mut totals) {
            errors_of(problem, Affine { scale, zero }, at, &mut errors);
            let mut run = [[0.0; LANES]; 4];
            rows(&errors).for_each(|row| add_row(&mut run, &row));
            add_row(total, &run);
        }
    }
    sums.copy_from_slice(totals.as_flattened().as_flattened());
}

/// The mean of all errors in iteration `iteration` of a run, which began with `affine`.
pub fn mean(problem: &Problem, affine: Affine, sums: &[f32], iteration: usize) -> f32 {
    let elements = problem.groups.elements();
    let cut = Cut::of(elements);
    let mut cascade = Cascade::new(elements / WIDTH);
    for block in sums.chunks_exact(RUN * WIDTH) {
        let sum = &block[iteration * WIDTH..(iteration + 1) * WIDTH];
        rows(sum).for_each(|row| cascade.add_block(&row));
    }
    let mut errors = vec![0.0; cut.run];
    let mut rest = 0..0;
    for at in (elements / cut.block * cut.block..elements).step_by(cut.run) {
        let count = cut.run.min(elements - at);
        errors_of(problem, affine, at, &mut errors[..count]);
        rows(&errors[..count]).for_each(|row| cascade.add_row(&row));
        rest = count / WIDTH * WIDTH..count;
    }
    let rest = errors[rest].chunks_exact(LANES);
    let rest = rest.map(|v| <[f32; LANES]>::try_from(v).expect("a whole vector"));
    sum_lanes(join(cascade.total(), rest), std::iter::empty()) / elements as f32
}

/// `|weight - decoded weight|` of the elements from `first` on.
#[inline(always)]
fn errors_of(problem: &Problem, affine: Affine, first: usize, errors: &mut [f32]) {
    let weight = &problem.weight[first..first + errors.len()];
    let top = problem.top;
    let error = |error: &mut f32, w: f32, scale: f32, zero: f32| {
        *error = (w - (code(w, scale, zero, top) - zero) / scale).abs();
    };
    problem.groups.each(first, weight, affine, errors, error);
}

/// Whole rows of numbers.
#[inline(always)]
fn rows(numbers: &[f32]) -> impl Iterator<Item = Row<LANES>> {
    numbers.chunks_exact(WIDTH).map(|row| {
        let mut vectors = [[0.0; LANES]; 4];
        vectors.as_flattened_mut().copy_from_slice(row);
        vectors
    })
}
