//! The held-out losses of two arms -> their difference, its interval and what that says.

use serde::Serialize;

use super::bootstrap::{CONFIDENCE, Draws, FEWEST_SEEDS, Interval, Parts};
use super::paired::Paired;

/// What an interval takes into account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// Other documents and other seeds.
    DocumentsAndSeeds,
    /// Other documents: no seed plays a part, since nothing was trained.
    Documents,
    /// Other documents, where other seeds would matter too, of which there are too few.
    TooFewSeeds,
}

impl Basis {
    /// That of runs trained under so many seeds.
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
    /// In nats a token; below 0 where the first arm is better.
    pub estimate: f64,
    /// Where it may truly lie: 95 % of such intervals hold the truth.
    pub interval: Interval,
    /// The wider interval by which it was decided whether the arms differ, where it is one of many
    /// comparisons.
    pub together: Interval,
    /// What the intervals take into account.
    pub basis: Basis,
    /// Documents that bear loss.
    pub documents: usize,
    /// The difference under each seed.
    pub by_seed: Vec<f64>,
    /// The risk that the wider interval leaves.
    #[serde(skip)]
    pub risk: f64,
    /// What its variance is made of.
    #[serde(skip)]
    pub parts: Parts,
}

impl Difference {
    /// The difference of runs that were trained under several seeds, alone, from `draws` draws.
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

    /// The difference that `draws` were drawn of, decided at `risk`.
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

    /// Whether there is a verdict, and it is that the arms differ, were it the only comparison.
    pub fn is_real(&self) -> bool {
        self.has_verdict() && !self.interval.contains(0.0)
    }

    /// Whether seeds and documents are enough for a verdict.
    pub fn has_verdict(&self) -> bool {
        self.basis != Basis::TooFewSeeds && self.documents > 1
    }

    /// The same difference seen from the other arm.
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

    /// Documents that differ by `shift` a token, but for a little noise.
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
    fn one_document_says_nothing_about_others() {
        assert!(!Difference::trained(&paired(3, 1, 1.0), 500).is_real());
        assert!(!Difference::untrained(&paired(1, 1, 1.0), 500).is_real());
        assert!(Difference::untrained(&paired(1, 20, 1.0), 500).is_real());
    }

    #[test]
    fn the_other_arm_sees_the_same_difference_reversed() {
        let difference = Difference::trained(&paired(3, 20, 1.0), 500);
        assert_eq!(difference.reversed().estimate, -difference.estimate);
        assert_eq!(difference.reversed().reversed(), difference);
    }
}
