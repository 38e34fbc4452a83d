//! A weight and the Gram matrix of its inputs -> for each group, the clipping of its weights that
//! changes the outputs least, and the nearest codes.
//!
//! A group's largest magnitude `m` is shrunk to `ratio m`, with the ratios that AWQ's clip search
//! tries (Lin et al. 2023, arXiv:2306.00978; github.com/mit-han-lab/llm-awq, `auto_clip.py`): 1 to
//! 0.5 in steps of 0.05. The objective is AWQ's, the squared error of the group's part of the
//! outputs, `e G e^T` with the errors `e` of the group's weights and its block `G` of the Gram
//! matrix, over all calibration rows. [`crate::awq`] searches the same for weights over factors of
//! their columns.

use espalier_interface::{Result, Services};
use espalier_kernels::simd::vectorized;

use crate::grid::{Grid, GridSpec, ends};
use crate::grouping::Grouping;
use crate::nearest::{Found, FoundRows};

/// Steps of the search, the unclipped one besides.
const STEPS: usize = 10; // auto_clip.py: max_shrink 0.5 of n_grid 20
/// What a step takes off the largest magnitude, as a part of it.
const STEP: f32 = 0.05;
/// Partial sums of a product: their number is part of the result's bits.
const LANES: usize = 8;

/// Clips and codes every group of a weight `[N, M]`; `gram` is `[M, M]`.
///
/// # Errors
/// `CANCELLED` when the user stopped the run.
pub fn clip(
    spec: GridSpec,
    groups: Grouping,
    (weight, gram): (&[f32], &[f32]),
    found: &mut Found<'_>,
    services: &dyn Services,
) -> Result<()> {
    let per_row = groups.per_row();
    found.by_rows(groups, weight, 1, services, |row| {
        let FoundRows {
            weight,
            codes,
            scales,
            zeros,
        } = row;
        for group in 0..per_row {
            let first = group * groups.size;
            let inputs = Inputs {
                gram,
                factors: None,
                first,
                cols: groups.cols,
            };
            let weight = &weight[first..first + groups.size];
            let grid = best(spec, weight, inputs);
            (scales[group], zeros[group]) = (grid.scale, grid.zero);
            for (code, &x) in codes[first..first + groups.size].iter_mut().zip(weight) {
                *code = spec.code(grid, x) as u8;
            }
        }
    })
}

/// The block of a Gram matrix that belongs to a group.
#[derive(Clone, Copy)]
pub struct Inputs<'a> {
    /// The Gram matrix, `[M, M]`.
    pub gram: &'a [f32],
    /// What the codes of each column are times, `[M]`, where they are times something.
    pub factors: Option<&'a [f32]>,
    /// The group's first column.
    pub first: usize,
    /// `M`.
    pub cols: usize,
}

impl Inputs<'_> {
    /// `e G e^T`.
    fn error(self, errors: &[f32]) -> f64 {
        vectorized(
            #[inline(always)]
            || {
                let mut sum = 0.0;
                for (row, &error) in errors.iter().enumerate() {
                    let from = (self.first + row) * self.cols + self.first;
                    let gram = &self.gram[from..from + errors.len()];
                    sum += f64::from(error) * dot(gram, errors);
                }
                sum
            },
        )
    }
}

#[inline(always)]
fn dot(a: &[f32], b: &[f32]) -> f64 {
    let mut lanes = [0.0f64; LANES];
    let (a, rest_a) = a.as_chunks::<LANES>();
    let (b, rest_b) = b.as_chunks::<LANES>();
    for (a, b) in a.iter().zip(b) {
        for lane in 0..LANES {
            lanes[lane] += f64::from(a[lane]) * f64::from(b[lane]);
        }
    }
    let rest = rest_a.iter().zip(rest_b);
    let rest = rest.fold(0.0, |sum, (a, b)| sum + f64::from(*a) * f64::from(*b));
    lanes.iter().sum::<f64>() + rest
}

/// The grid of the least error for the weights of a group, over their factors; of equal ones the
/// least clipped.
pub fn best(spec: GridSpec, weight: &[f32], inputs: Inputs<'_>) -> Grid {
    let [low, high] = ends(weight);
    let largest = high.max(-low);
    let mut errors = vec![0.0f32; weight.len()];
    let mut least: Option<(f64, Grid)> = None;
    for step in 0..=STEPS {
        let most = largest * (1.0 - STEP * step as f32);
        let grid = spec.between(low.max(-most), high.min(most));
        for (error, &x) in errors.iter_mut().zip(weight) {
            *error = x - grid.value(spec.code(grid, x));
        }
        if let Some(factors) = inputs.factors {
            for (error, factor) in errors.iter_mut().zip(&factors[inputs.first..]) {
                *error *= factor;
            }
        }
        let found = inputs.error(&errors);
        if least.is_none_or(|(least, _)| found < least) {
            least = Some((found, grid));
        }
    }
    least.expect("one step at least was tried").1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grid::Symmetry;
    use crate::number::Number;

    #[test]
    fn an_outlier_without_inputs_is_clipped_and_one_with_inputs_is_not() {
        let spec = GridSpec {
            bits: 2,
            symmetry: Symmetry::Asymmetric,
            number: Number::F32,
        };
        let weight = [3.0, 0.9, -0.9, 0.4];
        let gram = |outlier: f32| {
            let mut gram = vec![0.0; 16];
            for at in 0..4 {
                gram[5 * at] = if at == 0 { outlier } else { 1.0 };
            }
            gram
        };
        let of = |outlier| {
            let gram = gram(outlier);
            best(
                spec,
                &weight,
                Inputs {
                    gram: &gram,
                    factors: None,
                    first: 0,
                    cols: 4,
                },
            )
        };
        let whole = spec.of(&weight);
        assert!(of(0.0).scale < whole.scale, "{:?}", of(0.0));
        assert_eq!(of(100.0), whole);
    }
}
