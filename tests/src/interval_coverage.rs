//! Runs of one arm under many seeds -> how often two equal groups of them appear to differ.

use espalier_compare::statistics::{DRAWS, Difference, Paired};
use espalier_conformance::largest;
use espalier_engine::document_loss::DocumentLoss;
use espalier_trainer::train::HeldOut;

use crate::Golden;

/// Results of pairs of equal groups of runs.
#[derive(Clone, Debug, PartialEq)]
pub struct EqualPairs {
    /// Number of pairs.
    pub pairs: usize,
    /// Pairs whose 95 % interval holds 0, the true difference.
    pub holding: usize,
    /// The mean width of the intervals, nats a token.
    pub width: f64,
    /// The standard deviation of the differences over pairs: their true scatter.
    pub deviation: f64,
    /// The largest difference.
    pub largest: f64,
}

impl EqualPairs {
    /// Whether 90 to 99 % of the intervals hold 0.
    pub fn has_expected_coverage(&self) -> bool {
        let share = self.holding as f64 / self.pairs.max(1) as f64;
        (0.9..=0.99).contains(&share)
    }
}

/// Splits `runs` into disjoint pairs of groups of `seeds` runs each, and evaluates every pair.
///
/// # Panics
/// If runs were not evaluated on the same documents.
pub fn evaluate(runs: &[HeldOut], seeds: usize) -> EqualPairs {
    let differences = runs.chunks_exact(2 * seeds).map(|runs| {
        let runs: Vec<&HeldOut> = runs.iter().collect();
        let (first, second) = runs.split_at(seeds);
        let paired = Paired::new(first, second).expect("the same documents");
        Difference::trained(&paired, DRAWS)
    });
    let differences: Vec<Difference> = differences.collect();
    let count = differences.len().max(1) as f64;
    let estimates = || differences.iter().map(|difference| difference.estimate);
    let holding = differences
        .iter()
        .filter(|difference| !difference.is_real());
    let widths = differences
        .iter()
        .map(|difference| difference.interval.width());
    EqualPairs {
        pairs: differences.len(),
        holding: holding.count(),
        width: widths.sum::<f64>() / count,
        deviation: (estimates().map(|x| x * x).sum::<f64>() / count).sqrt(),
        largest: largest(estimates().map(f64::abs)),
    }
}

/// Runs from a file of `losses`, f32 `[runs, documents]`, and `trained`, i64 `[documents]`.
pub fn recorded(file: &Golden) -> Vec<HeldOut> {
    let trained = file.numbers("trained");
    let runs = file.numbers("losses").chunks_exact(trained.len());
    let run = |losses: &[f64]| HeldOut {
        step: 0,
        documents: losses
            .iter()
            .zip(trained)
            .map(|(loss, trained)| DocumentLoss {
                loss: *loss,
                correct: 0,
                trained: *trained as u64,
            })
            .collect(),
    };
    runs.map(run).collect()
}
