//! A difference that is not significant -> the seeds and documents that would make it significant.

use serde::Serialize;

use super::bootstrap::{FEWEST_SEEDS, Parts};
use super::difference::{Basis, Difference};
use super::pool::Spread;
use super::quantiles::student_quantile;

/// Statistical power: the share of such comparisons in which the observed difference would be
/// significant.
const POWER: f64 = 0.8;
/// Larger numbers of seeds or documents are not recommended.
const MOST_SEEDS: usize = 200;
const MOST_DOCUMENTS: f64 = 1e7;

/// Seeds and documents that make the observed difference significant in 8 of 10 comparisons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Needed {
    /// Seeds; 0 where they have no effect.
    pub seeds: usize,
    /// Held-out documents.
    pub documents: usize,
}

impl Needed {
    /// The numbers for `difference`, if its estimate and variance are the true ones. They are the
    /// same documents and more seeds, or more of both where the documents' variance alone is too
    /// large. `None` where the numbers would be impractical.
    pub fn of(difference: &Difference) -> Option<Self> {
        let documents = difference.documents as f64;
        if difference.documents < 2 || difference.estimate == 0.0 {
            return None;
        }
        let a_document = difference.parts.documents * documents;
        let known = |documents: f64| {
            Some(Needed {
                seeds: seeds_for(difference, a_document / documents, documents - 1.0)?,
                documents: documents as usize,
            })
        };
        known(documents).or_else(|| {
            let share = match difference.basis {
                Basis::Documents => 1.0,
                // The seeds' part dominates, so more documents would hardly reduce the seeds.
                _ => 0.25,
            };
            let allowed = share * allowed(difference, f64::INFINITY);
            // A margin for the uncertainty of the variance, which the normal distribution ignores.
            let more = (1.01 * a_document / allowed).max(documents).ceil() + 6.0;
            (more <= MOST_DOCUMENTS).then(|| known(more))?
        })
    }
}

/// The variance at which the observed difference reaches [`POWER`].
fn allowed(difference: &Difference, freedom: f64) -> f64 {
    let freedom = freedom.clamp(1.0, 1e6);
    let significant = student_quantile(freedom, 1.0 - difference.risk / 2.0);
    let powerful = student_quantile(freedom, POWER);
    (difference.estimate / (significant + powerful)).powi(2)
}

/// The fewest seeds, at least the present number, where the variance over documents is `documents`.
fn seeds_for(difference: &Difference, documents: f64, documents_freedom: f64) -> Option<usize> {
    let parts = |seeds: Option<Spread>| Parts {
        seeds,
        documents,
        documents_freedom,
    };
    let Some(spread) = difference.parts.seeds else {
        // Seeds have no effect, or are too few to estimate it.
        let alone = difference.basis == Basis::Documents;
        let freedom = parts(None).freedom();
        return (alone && documents <= allowed(difference, freedom)).then_some(0);
    };
    let before = difference.by_seed.len();
    let enough = |seeds: usize| {
        let more = seeds as f64 / before as f64;
        let spread = Spread {
            variance: spread.variance / more,
            freedom: spread.freedom * (seeds - 1) as f64 / (before - 1) as f64,
        };
        spread.variance + documents <= allowed(difference, parts(Some(spread)).freedom())
    };
    let counts: Vec<usize> = (before.max(FEWEST_SEEDS)..=MOST_SEEDS).collect();
    counts
        .get(counts.partition_point(|seeds| !enough(*seeds)))
        .copied()
}

#[cfg(test)]
mod tests {
    use super::super::{Draws, Paired};
    use super::*;

    fn difference(of_seeds: f64, of_documents: f64, basis: Basis) -> Difference {
        let noise = |at: usize| if at.is_multiple_of(2) { 1.0 } else { -1.0 };
        let seeds = [1.0, -1.0, 0.0];
        let seed = |seed: &f64| {
            (0..40)
                .map(|at| 0.1 + of_seeds * seed + of_documents * noise(at))
                .collect()
        };
        let count = if basis == Basis::Documents { 1 } else { 3 };
        let paired = Paired {
            trained: vec![1.0; 40],
            differences: seeds[..count].iter().map(seed).collect(),
        };
        Difference::at(&paired, &Draws::of(&paired, None, 200), basis, 0.05)
    }

    #[test]
    fn seed_noise_needs_more_seeds_and_document_noise_more_documents() {
        let seeds =
            Needed::of(&difference(0.1, 0.001, Basis::DocumentsAndSeeds)).expect("a number");
        // 2 (1.96 + 0.84)^2 / 2 = 7.8 for a normal distribution; Student's t needs a few more.
        assert!(
            (8..=12).contains(&seeds.seeds) && seeds.documents == 40,
            "{seeds:?}"
        );
        let rows = Needed::of(&difference(0.0, 1.0, Basis::Documents)).expect("a number");
        assert!(
            rows.seeds == 0 && (780..860).contains(&rows.documents),
            "{rows:?}"
        );
        let both = Needed::of(&difference(0.1, 1.0, Basis::DocumentsAndSeeds)).expect("a number");
        assert!(both.seeds > 5 && both.documents > 500, "{both:?}");
    }

    #[test]
    fn equal_arms_have_no_needed_numbers() {
        let mut none = difference(0.1, 0.1, Basis::DocumentsAndSeeds);
        none.estimate = 0.0;
        assert_eq!(Needed::of(&none), None);
        none.estimate = 1e-9;
        assert_eq!(Needed::of(&none), None);
    }
}
