//! Paired losses, or the losses of successive steps -> the confidence interval of the change of
//! their mean.
//!
//! Pairs: the interval covers other rows of this kind. It is the jackknife of a ratio, which also
//! holds for rows of unequal length. Shuffled steps: Student's t of two means. Without training
//! such steps are exchangeable. The noise of a step is estimated by its distance from the mean of
//! its neighbours, which cancels slow trends.
//!
//! # Source
//! The ratio's jackknife: Cochran, "Sampling Techniques", 1977, section 6.15. The noise from second
//! differences: Gasser, Sroka and Jennen-Steinmetz, "Residual variance and residual pattern in
//! nonlinear regression", Biometrika 73, 1986.

use std::ops::Range;

use espalier_engine::observer::StepMetrics;
use statrs::distribution::{ContinuousCDF, StudentsT};

use crate::series::mean;

/// The coverage of the intervals.
pub const CONFIDENCE: f64 = 0.95;
/// Of many steps the last tenth counts, at most 50.
const PART_OF_MANY: usize = 10;
/// See [`PART_OF_MANY`].
const MOST_OF_MANY: usize = 50;
/// Of few steps the last third counts, at most 10.
const PART_OF_FEW: usize = 3;
/// See [`PART_OF_FEW`].
const MOST_OF_FEW: usize = 10;

/// Rows evaluated before and after.
#[derive(Clone, Copy, Debug)]
pub struct Pair {
    /// Their losses, before and after, in nats.
    pub sums: [f64; 2],
    /// Their trained tokens.
    pub tokens: f64,
}

/// Means before and after, and the confidence interval of their difference.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// In nats per token.
    pub means: [f64; 2],
    /// Interval of the mean after less the mean before.
    pub interval: [f64; 2],
    /// Pairs or steps that it is computed from.
    pub count: usize,
}

/// The means of the first and the last part of the steps; `None` without a step.
pub fn ends(steps: &[StepMetrics]) -> Option<[f64; 2]> {
    let weights = weights(steps);
    let [first, last] = parts(steps.len())?;
    let mean = |part: &Range<usize>| {
        let products = part.clone().map(|step| steps[step].loss * weights[step]);
        products.sum::<f64>() / weights[part.clone()].iter().sum::<f64>()
    };
    Some([mean(&first), mean(&last)])
}

/// The change from the first to the last part of the steps; `None` of fewer than three.
pub fn of_parts(steps: &[StepMetrics]) -> Option<Found> {
    let weights = weights(steps);
    let (means, ends) = (ends(steps)?, parts(steps.len())?);
    let residuals = steps.windows(3).zip(weights.windows(3)).map(|(step, w)| {
        let residual = step[1].loss - (step[0].loss + step[2].loss) / 2.0;
        residual * residual / (1.0 / w[1] + (1.0 / w[0] + 1.0 / w[2]) / 4.0)
    });
    // Independent tokens: a step of weight w has 1 / w of the variance of a step of weight 1.
    let sum = |part: &Range<usize>| weights[part.clone()].iter().sum::<f64>();
    let of_tokens = mean(residuals) * ends.iter().map(|part| 1.0 / sum(part)).sum::<f64>();
    // Fully correlated tokens of a row: all steps have the same variance.
    let residuals = steps.windows(3).map(|step| {
        let residual = step[1].loss - (step[0].loss + step[2].loss) / 2.0;
        residual * residual / 1.5
    });
    let squares = |part: &Range<usize>| weights[part.clone()].iter().map(|w| w * w).sum::<f64>();
    let shares = ends.iter().map(|part| squares(part) / sum(part).powi(2));
    let of_rows = mean(residuals) * shares.sum::<f64>();
    let half = student(freedom(steps.len())?, 1) * of_tokens.max(of_rows).sqrt();
    Some(Found::around(means, half, steps.len()))
}

/// The change of the mean over pairs, one of `comparisons` (Bonferroni correction); `None` of fewer
/// than two.
pub fn of_pairs(pairs: &[Pair], comparisons: usize) -> Option<Found> {
    let count = pairs.len() as f64;
    if pairs.len() < 2 {
        return None;
    }
    let tokens: f64 = pairs.iter().map(|pair| pair.tokens).sum();
    let means = [0, 1].map(|end| pairs.iter().map(|pair| pair.sums[end]).sum::<f64>() / tokens);
    let moved = |pair: &Pair| pair.sums[1] - pair.sums[0];
    let sum: f64 = pairs.iter().map(moved).sum();
    let without = |pair: &Pair| (sum - moved(pair)) / (tokens - pair.tokens);
    let without: Vec<f64> = pairs.iter().map(without).collect();
    let middle = without.iter().sum::<f64>() / count;
    let squares: f64 = without.iter().map(|x| (x - middle) * (x - middle)).sum();
    let half = student(count - 1.0, comparisons) * ((count - 1.0) / count * squares).sqrt();
    Some(Found::around(means, half, pairs.len()))
}

impl Found {
    fn around(means: [f64; 2], half: f64, count: usize) -> Self {
        let moved = means[1] - means[0];
        Found {
            means,
            interval: [moved - half, moved + half],
            count,
        }
    }
}

/// Weights of steps by their trained tokens; equal weights where a step's tokens are not on record.
pub fn weights(steps: &[StepMetrics]) -> Vec<f64> {
    let known = steps.iter().all(|step| step.trained_tokens > 0);
    let weight = |step: &StepMetrics| {
        if known {
            step.trained_tokens as f64
        } else {
            1.0
        }
    };
    steps.iter().map(weight).collect()
}

/// The first and the last steps whose means are compared. The first part is half as long, since
/// losses fall fastest there. They overlap only for a single step; `None` without a step.
fn parts(steps: usize) -> Option<[Range<usize>; 2]> {
    let of_few = steps.div_ceil(PART_OF_FEW).min(MOST_OF_FEW);
    let part = (steps / PART_OF_MANY).clamp(of_few, MOST_OF_MANY);
    let part = part.min(steps / 2).max(1);
    (steps > 0).then(|| [0..part.div_ceil(2), steps - part..steps])
}

/// Degrees of freedom of the mean squared second difference of `values` independent values.
/// Neighbouring second differences correlate by -2/3 and 1/6. `None` of fewer than three.
fn freedom(values: usize) -> Option<f64> {
    let count = values.checked_sub(2).filter(|count| *count > 0)? as f64;
    let overlap = (count - 1.0) * 4.0 / 9.0 + (count - 2.0).max(0.0) / 36.0;
    Some(count * count / (count + 2.0 * overlap))
}

/// Two-sided quantile of Student's t for one of `comparisons`.
fn student(freedom: f64, comparisons: usize) -> f64 {
    let student =
        StudentsT::new(0.0, 1.0, freedom).expect("a positive number of degrees of freedom");
    let risk = (1.0 - CONFIDENCE) / comparisons.max(1) as f64;
    student.inverse_cdf(1.0 - risk / 2.0)
}
