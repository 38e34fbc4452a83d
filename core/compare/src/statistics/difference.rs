//! The held-out losses of two arms -> their difference, its interval and its significance.

use serde::Serialize;

use super::bootstrap::{CONFIDENCE, Draws, FEWEST_SEEDS, Interval, Parts};
use super::paired::Paired;

/// The sources of variation that an interval covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// Other documents and other seeds.
    DocumentsAndSeeds,
    /// Other documents only: without training, seeds have no effect.
    Documents,
    /// Other documents only: seeds have an effect, but are too few.
    TooFewSeeds,
}

impl Basis {
    /// The basis of runs trained under `seeds` seeds.
    pub fn of_seeds(seeds: usize) -> Self {
        match seeds {
            0..FEWEST_SEEDS => Basis::TooFewSeeds,
            _ => Basis::DocumentsAndSeeds,
        }
    }
}

/// The mean held-out loss of one arm less that of another.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// In nats per token; below 0 where the first arm is better.
    pub estimate: f64,
    /// Its confidence interval, with a coverage of 95 %.
    pub interval: Interval,
    /// The wider interval of the significance test, where it is one of many comparisons.
    pub together: Interval,
    /// The sources of variation that the intervals cover.
    pub basis: Basis,
    /// Documents with trained tokens.
    pub documents: usize,
    /// The difference under each seed.
    pub by_seed: Vec<f64>,
    /// The significance level of the wider interval.
    #[serde(skip)]
    pub risk: f64,
    /// The parts of its variance.
    #[serde(skip)]
    pub parts: Parts,
}

impl Difference {
    /// The difference of two arms trained under several seeds, as the only comparison, from `draws`
    /// draws.
    pub fn trained(paired: &Paired, draws: u32) -> Self {
        let basis = Basis::of_seeds(paired.differences.len());
        let draws = Draws::of(paired, None, draws);
        Difference::at(paired, &draws, basis, 1.0 - CONFIDENCE)
    }

    /// The difference of models that were not trained: `paired` holds one evaluation of each.
    pub fn untrained(paired: &Paired, draws: u32) -> Self {
        let draws = Draws::of(paired, None, draws);
        Difference::at(paired, &draws, Basis::Documents, 1.0 - CONFIDENCE)
    }

    /// The difference that `draws` estimate, tested at significance level `risk`.
    pub fn at(paired: &Paired, draws: &Draws, basis: Basis, risk: f64) -> Self {
        Difference {
            estimate: paired.estimate(),
            interval: draws.interval(CONFIDENCE),
            together: draws.interval(1.0 - risk),
            basis,
            documents: paired.trained.len(),
            by_seed: paired.by_seed(),
            risk,
            parts: draws.parts(),
        }
    }

    /// Whether the arms differ significantly, as the only comparison.
    pub fn is_real(&self) -> bool {
        self.has_verdict() && !self.interval.contains(0.0)
    }

    /// Whether seeds and documents are enough for a verdict.
    pub fn has_verdict(&self) -> bool {
        self.basis != Basis::TooFewSeeds && self.documents > 1
    }

    /// The same difference with the arms exchanged.
    pub fn reversed(&self) -> Self {
        let turned = |Interval([low, high])| Interval([-high, -low]);
        Difference {
            estimate: -self.estimate,
            interval: turned(self.interval),
            together: turned(self.together),
            by_seed: self.by_seed.iter().map(|x| -x).collect(),
            ..*self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Documents that differ by `shift` per token, plus a little noise.
    fn paired(seeds: usize, documents: usize, shift: f64) -> Paired {
        let noise = |seed: usize, document: usize| ((seed * 7 + document * 3) as f64).sin() * 0.1;
        let seed = |seed| -> Vec<f64> {
            let each = (0..documents).map(|document| 10.0 * (shift + noise(seed, document)));
            each.collect()
        };
        Paired {
            trained: vec![10.0; documents],
            differences: (0..seeds).map(seed).collect(),
        }
    }

    #[test]
    fn fewer_than_three_seeds_give_no_verdict() {
        for (seeds, verdict) in [(1, false), (2, false), (3, true)] {
            let difference = Difference::trained(&paired(seeds, 20, 1.0), 500);
            assert_eq!(difference.has_verdict(), verdict, "{seeds} seeds");
            assert_eq!(difference.is_real(), verdict, "{seeds} seeds");
            assert!(!difference.interval.contains(0.0));
        }
    }

    #[test]
    fn one_document_gives_no_verdict() {
        assert!(!Difference::trained(&paired(3, 1, 1.0), 500).is_real());
        assert!(!Difference::untrained(&paired(1, 1, 1.0), 500).is_real());
        assert!(Difference::untrained(&paired(1, 20, 1.0), 500).is_real());
    }

    #[test]
    fn exchanging_the_arms_reverses_the_difference() {
        let difference = Difference::trained(&paired(3, 20, 1.0), 500);
        assert_eq!(difference.reversed().estimate, -difference.estimate);
        assert_eq!(difference.reversed().reversed(), difference);
    }
}
