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

/// Blocking of a sum over a weight, in numbers: runs of rows, and blocks of runs.
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
        let groups = problem.groups.around(at..at + cut.run);
        let mut run = [[0.0; LANES]; 4];
        let mut before: Option<&[f32]> = None;
        let zeros = zeros.chunks_exact(problem.groups.count);
        for (zero, total) in zeros.zip(&mut totals) {
            // Where no zero changed, no error changed.
            let now = &zero[groups.clone()];
            if before.replace(now) != Some(now) {
                errors_of(problem, Affine { scale, zero }, at, &mut errors);
                run = [[0.0; LANES]; 4];
                for row in errors.as_chunks::<WIDTH>().0 {
                    add_row(&mut run, &vectors(row));
                }
            }
            add_row(total, &run);
        }
    }
    sums.copy_from_slice(totals.as_flattened().as_flattened());
}

/// The mean of all errors in iteration `iteration` of a run that started with `affine`.
pub fn mean(problem: &Problem, affine: Affine, sums: &[f32], iteration: usize) -> f32 {
    let elements = problem.groups.elements();
    let cut = Cut::of(elements);
    let mut cascade = Cascade::new(elements / WIDTH);
    for block in sums.chunks_exact(RUN * WIDTH) {
        let sum = &block[iteration * WIDTH..(iteration + 1) * WIDTH];
        let (rows, _) = sum.as_chunks::<WIDTH>();
        rows.iter().for_each(|row| cascade.add_block(&vectors(row)));
    }
    let mut errors = vec![0.0; cut.run];
    let mut rest = 0..0;
    for at in (elements / cut.block * cut.block..elements).step_by(cut.run) {
        let count = cut.run.min(elements - at);
        errors_of(problem, affine, at, &mut errors[..count]);
        let (rows, _) = errors[..count].as_chunks::<WIDTH>();
        rows.iter().for_each(|row| cascade.add_row(&vectors(row)));
        rest = count / WIDTH * WIDTH..count;
    }
    let (rest, _) = errors[rest].as_chunks::<LANES>();
    sum_lanes(join(cascade.total(), rest), &[]) / elements as f32
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

/// A row as its vectors.
#[inline(always)]
fn vectors(row: &[f32; WIDTH]) -> Row<LANES> {
    std::array::from_fn(|column| std::array::from_fn(|lane| row[LANES * column + lane]))
}
