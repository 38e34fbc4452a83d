//! A weight and statistics of its inputs -> a factor for each column, and codes of the weight over
//! its factors (AWQ).
//!
//! `W / f` is rounded, and `f` is kept beside the codes: a weight is `f_c (q - zero) scale`. A
//! column of large inputs gets a small factor. So it takes more of its group's range, and its error
//! is smaller. The factors are `f_c = 1 / s_c`, with `s_c = m_c^ratio / sqrt(max s min s)` of the
//! mean magnitude `m_c` of the input `c`. Of the ratios 0, 0.05, ... 0.95 the one with the least
//! error of the outputs is taken: `|X (W - Q)^T|^2 = sum_r e_r G e_r^T`, with the Gram matrix `G`
//! of the inputs and the errors `e_r` of row `r`. Ratio 0 is plain rounding. The clipping of groups
//! is then searched as in [`crate::clip`], and kept for each row whose error becomes less.
//!
//! # Source
//! Lin et al. 2023 (arXiv:2306.00978); github.com/mit-han-lab/llm-awq, `auto_scale.py` and
//! `auto_clip.py`. They search one scale for all weights that read the same value, because it is
//! folded into the norm or linear before, and clip each row. Here each weight has its own factors.
//!
//! Legend: a weight is `[N, M]`.

use espalier_interface::{Result, Services, in_pieces};

use crate::clip::{self, Inputs};
use crate::grid::{Grid, GridSpec};
use crate::grouping::Grouping;
use crate::nearest::{Found, FoundRows, heed_cancel};
use crate::output_error::{ROWS, output_errors};

/// The number of ratios that are tried.
const RATIOS: u32 = 20; // auto_scale.py: n_grid
/// The smallest power of a mean magnitude.
const LEAST: f32 = 1e-4; // auto_scale.py: clamp(min=1e-4)

/// The options of the algorithm.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Awq {
    /// How grids are chosen and stored.
    pub grid: GridSpec,
    /// Whether groups are clipped.
    pub clipping: Clipping,
}

/// Whether groups are clipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clipping {
    /// Where a row's error becomes less.
    Searched,
    /// Never.
    Off,
}

/// What is known of the inputs of a weight.
#[derive(Clone, Copy)]
pub struct Activations<'a> {
    /// The mean of `|x_c|`, `[M]`.
    pub mean_absolute: &'a [f32],
    /// The sum of `x x^T`, `[M, M]`.
    pub gram: &'a [f32],
}

impl Awq {
    /// Codes the weight `[N, M]`, and writes the factor of each column to `factors`, `[M]`.
    ///
    /// # Errors
    /// `CANCELLED` when the user stopped the run.
    pub fn encode(
        self,
        groups: Grouping,
        weight: &[f32],
        inputs: Activations<'_>,
        (found, factors): (&mut Found<'_>, &mut [f32]),
        services: &dyn Services,
    ) -> Result<()> {
        let best = self.search(groups, weight, inputs, services)?;
        factors.copy_from_slice(&best);
        let factors = &*factors;
        found.by_rows(groups, weight, ROWS, services, |mut rows| {
            let weight = rows.weight;
            let mut errors = vec![[0.0; ROWS]; groups.cols];
            self.round(groups, factors, &mut rows, &mut errors);
            if self.clipping == Clipping::Off {
                return;
            }
            let plain = output_errors(inputs.gram, &errors);
            let (mut codes, mut scales, mut zeros) = (
                vec![0; rows.codes.len()],
                vec![0.0; rows.scales.len()],
                vec![0.0; rows.zeros.len()],
            );
            let mut clipped = FoundRows {
                weight,
                codes: &mut codes,
                scales: &mut scales,
                zeros: &mut zeros,
            };
            self.clip(groups, factors, inputs.gram, &mut clipped, &mut errors);
            let with_clipping = output_errors(inputs.gram, &errors);
            let (cols, per_row) = (groups.cols, groups.per_row());
            for row in 0..weight.len() / cols {
                if with_clipping[row] < plain[row] {
                    let (elements, numbers) = (row * cols, row * per_row);
                    let (elements, numbers) =
                        (elements..elements + cols, numbers..numbers + per_row);
                    rows.codes[elements.clone()].copy_from_slice(&clipped.codes[elements]);
                    rows.scales[numbers.clone()].copy_from_slice(&clipped.scales[numbers.clone()]);
                    rows.zeros[numbers.clone()].copy_from_slice(&clipped.zeros[numbers]);
                }
            }
        })
    }

    /// The factors of the least error, `[M]`; of equal ones those of the smallest ratio.
    fn search(
        self,
        groups: Grouping,
        weight: &[f32],
        inputs: Activations<'_>,
        services: &dyn Services,
    ) -> Result<Vec<f32>> {
        let mut candidates = vec![vec![1.0; groups.cols]];
        let ratios = (1..RATIOS).map(|step| step as f32 / RATIOS as f32);
        let powers = ratios.map(|ratio| factors(inputs.mean_absolute, ratio));
        let is_usable = |factor: &f32| factor.is_normal();
        candidates.extend(powers.filter(|factors| factors.iter().all(is_usable)));
        let pieces = weight.len().div_ceil(ROWS * groups.cols);
        let mut errors = vec![0.0f64; pieces * candidates.len()];
        let work = weight.chunks(ROWS * groups.cols);
        let work = work.zip(errors.chunks_exact_mut(candidates.len()));
        in_pieces(services, work.collect(), |(weight, sums)| {
            let (mut codes, mut scales, mut zeros) = (
                vec![0; weight.len()],
                vec![0.0; weight.len() / groups.size],
                vec![0.0; weight.len() / groups.size],
            );
            let mut errors = vec![[0.0; ROWS]; groups.cols];
            for (sum, factors) in sums.iter_mut().zip(&candidates) {
                if services.cancelled() {
                    return;
                }
                let mut rows = FoundRows {
                    weight,
                    codes: &mut codes,
                    scales: &mut scales,
                    zeros: &mut zeros,
                };
                self.round(groups, factors, &mut rows, &mut errors);
                *sum = output_errors(inputs.gram, &errors).iter().sum();
            }
        });
        heed_cancel(services)?;
        let of = |at: usize| -> f64 { errors.iter().skip(at).step_by(candidates.len()).sum() };
        // The error of a candidate with numbers beyond f32 is NaN, which is less than none.
        let best = (1..candidates.len()).fold((0, of(0)), |(best, least), at| {
            let found = of(at);
            if found < least {
                (at, found)
            } else {
                (best, least)
            }
        });
        Ok(candidates.swap_remove(best.0))
    }

    /// Rounds rows over their factors to the grids of their groups. `errors` `[M, ROWS]` gets what
    /// each weight loses.
    fn round(
        self,
        groups: Grouping,
        factors: &[f32],
        rows: &mut FoundRows<'_>,
        errors: &mut [[f32; ROWS]],
    ) {
        self.code(groups, factors, rows, errors, |_, weight| {
            self.grid.of(weight)
        });
    }

    /// Rounds rows over their factors to the clipped grids of the least error of their groups.
    fn clip(
        self,
        groups: Grouping,
        factors: &[f32],
        gram: &[f32],
        rows: &mut FoundRows<'_>,
        errors: &mut [[f32; ROWS]],
    ) {
        self.code(groups, factors, rows, errors, |first, weight| {
            let inputs = Inputs {
                gram,
                factors: Some(factors),
                first,
                cols: groups.cols,
            };
            clip::best(self.grid, weight, inputs)
        });
    }

    /// Codes rows; `grid` chooses that of a group from its first column and its weights over their
    /// factors.
    fn code(
        self,
        groups: Grouping,
        factors: &[f32],
        rows: &mut FoundRows<'_>,
        errors: &mut [[f32; ROWS]],
        grid: impl Fn(usize, &[f32]) -> Grid,
    ) {
        let mut scaled = vec![0.0f32; groups.size];
        let per_row = groups.per_row();
        for (group, weight) in rows.weight.chunks_exact(groups.size).enumerate() {
            let (row, first) = (group / per_row, group % per_row * groups.size);
            let factors = &factors[first..first + groups.size];
            for ((scaled, x), factor) in scaled.iter_mut().zip(weight).zip(factors) {
                *scaled = x / factor;
            }
            let grid = grid(first, &scaled);
            (rows.scales[group], rows.zeros[group]) = (grid.scale, grid.zero);
            let codes = &mut rows.codes[group * groups.size..][..groups.size];
            for at in 0..groups.size {
                let code = self.grid.code(grid, scaled[at]);
                codes[at] = code as u8;
                errors[first + at][row] = weight[at] - grid.value(code) * factors[at];
            }
        }
    }
}

/// The factors of a ratio, `[M]`.
fn factors(mean_absolute: &[f32], ratio: f32) -> Vec<f32> {
    let powers = mean_absolute.iter();
    let powers: Vec<f32> = powers.map(|mean| mean.powf(ratio).max(LEAST)).collect();
    let ends = powers.iter();
    let (low, high) = ends.fold((f32::INFINITY, 0.0f32), |(low, high), &x| {
        (low.min(x), high.max(x))
    });
    let middle = (low * high).sqrt();
    powers.into_iter().map(|power| middle / power).collect()
}

#[cfg(test)]
mod tests;
