//! Differences by seed and document -> the parts of their mean's variance.
//!
//! A document's difference per token under a seed is modelled as
//! `d + a(seed) + b(document) + c(seed, document)`. The effects are independent with mean 0: the
//! two-way layout with random effects. The variance of the mean over S seeds and D documents is
//! then `A / S + B / D + C / (S D)`. The means by seed have the variance `A + C / D`, the means by
//! document `B + C / S`. Their sum would count C twice, so C is subtracted from the documents'
//! part.
//!
//! # Source
//! Searle, Casella and McCulloch, "Variance Components", 1992, chapter 4; the documents' ratio
//! estimator: Cochran, "Sampling Techniques", 1977, section 6.3. For the same split in models of
//! language: Miller, "Adding Error Bars to Evals", 2024, section 3.

use super::paired::Paired;

/// Variances of the mean difference per token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Variance {
    /// The part of the seeds, `(A + C / D) / S`; `None` of fewer than two.
    pub seeds: Option<f64>,
    /// The part of the documents, `B / D`, without the part in [`Self::seeds`]; `None` of fewer
    /// than two.
    pub documents: Option<f64>,
    /// The variance of the means by document, `(B + C / S) / D`.
    pub documents_total: f64,
}

impl Variance {
    /// The variances of `paired`.
    pub fn of(paired: &Paired) -> Self {
        let (seeds, documents) = (paired.differences.len(), paired.trained.len());
        let by_seed = paired.by_seed();
        let seeds_variance = sample_variance(&by_seed).map(|variance| variance / seeds as f64);
        let residuals = paired.differences.iter().zip(&by_seed);
        let residuals: Vec<Vec<f64>> = residuals
            .map(|(differences, mean)| {
                let each = differences.iter().zip(&paired.trained);
                each.map(|(sum, trained)| sum - mean * trained).collect()
            })
            .collect();
        let mean_of = |document: usize| -> f64 {
            residuals.iter().map(|seed| seed[document]).sum::<f64>() / seeds as f64
        };
        let means: Vec<f64> = (0..documents).map(mean_of).collect();
        let squares = |values: &[f64]| values.iter().map(|x| x * x).sum::<f64>();
        let interaction: f64 = residuals
            .iter()
            .flat_map(|seed| seed.iter().zip(&means))
            .map(|(residual, mean)| (residual - mean) * (residual - mean))
            .sum();
        // Sums over documents have documents - 1 degrees of freedom, in units of all tokens
        // squared.
        let scale = match documents {
            0 | 1 => None,
            n => Some(n as f64 / (n as f64 - 1.0) / (paired.tokens() * paired.tokens())),
        };
        let total = scale.map_or(0.0, |scale| scale * squares(&means));
        let twice = match (scale, seeds) {
            (Some(scale), 2..) => scale * interaction / (seeds * (seeds - 1)) as f64,
            _ => 0.0,
        };
        Variance {
            seeds: seeds_variance,
            documents: scale.map(|_| (total - twice).max(0.0)),
            documents_total: total,
        }
    }
}

/// The unbiased variance; `None` of fewer than two values.
pub fn sample_variance(values: &[f64]) -> Option<f64> {
    let count = values.len();
    let mean = values.iter().sum::<f64>() / count as f64;
    let squares: f64 = values.iter().map(|x| (x - mean) * (x - mean)).sum();
    (count > 1).then(|| squares / (count as f64 - 1.0))
}
