//! The findings of all arms -> the comparable runs, and the reasons for leaving out others.

use std::borrow::Cow;

use espalier_engine::document_loss::DocumentLoss;
use espalier_trainer::train::HeldOut;

use super::findings::{ArmFindings, Findings, is_finite};
use crate::statistics::FEWEST_SEEDS;

/// Larger losses are invalid, and their squares overflow.
const LARGEST_LOSS: f64 = 1e60;

/// Arms with numbers of the same documents and, after training, of the same seeds.
#[derive(Clone, Debug, Default)]
pub struct Contest<'a> {
    /// Places of the arms.
    pub places: Vec<usize>,
    /// The seeds of their runs; empty where nothing was trained.
    pub seeds: Vec<u64>,
    /// The result on each document, by arm and seed, `[K][S]`, or `[K][1]` without training.
    pub runs: Vec<Vec<Cow<'a, HeldOut>>>,
    /// Places of the arms left out, and the reasons.
    pub left_out: Vec<(usize, &'static str)>,
}

/// An arm and its runs by seed.
type Entrant<'a> = (usize, Vec<(u64, Cow<'a, HeldOut>)>);

impl<'a> Contest<'a> {
    /// From the runs after `step` steps of training.
    pub fn trained(findings: &'a Findings, step: u64) -> Self {
        let mut contest = Contest::default();
        let mut entrants = Vec::new();
        for (place, arm) in findings.arms.iter().enumerate() {
            let runs: Vec<(u64, Cow<'a, HeldOut>)> = arm
                .held_out(step)
                .into_iter()
                .filter(|(_, run)| is_usable(run))
                .map(|(seed, run)| (seed, Cow::Borrowed(run)))
                .collect();
            if runs.is_empty() {
                contest.leave_out(place, arm, "has not been evaluated after training")
            } else {
                entrants.push((place, runs))
            }
        }
        let entrants = contest.of_the_same_documents(findings, entrants);
        let entrants = contest.of_the_same_seeds(findings, entrants);
        contest.with(entrants)
    }

    /// From the divergence of the bases' predictions from those of the dense base, which is not
    /// ranked.
    pub fn bases(findings: &'a Findings) -> Self {
        let mut contest = Contest::default();
        let mut entrants = Vec::new();
        for (place, arm) in findings.arms.iter().enumerate() {
            if findings.dense_baseline() == Some(place) {
                continue;
            }
            let base = arm.base.as_ref();
            let divergence = base.and_then(|base| base.divergence.as_ref());
            let documents = divergence.map(|divergence| &divergence.documents);
            let found = documents
                .filter(|documents| !documents.is_empty())
                .map(|documents| {
                    let loss = |document: &crate::record::DocumentDivergence| DocumentLoss {
                        loss: document.sum,
                        correct: 0,
                        trained: document.tokens,
                    };
                    HeldOut {
                        step: 0,
                        documents: documents.iter().map(loss).collect(),
                    }
                });
            match (found.filter(is_usable), divergence) {
                (Some(found), _) => entrants.push((place, vec![(0, Cow::Owned(found))])),
                (None, Some(_)) => {
                    let why = "has no divergence by document on record (an older record)";
                    contest.leave_out(place, arm, why);
                }
                (None, None) => {
                    contest.leave_out(place, arm, "was not compared with the dense base")
                }
            }
        }
        let entrants = contest.of_the_same_documents(findings, entrants);
        let contest = contest.with(entrants);
        Contest {
            seeds: Vec::new(),
            ..contest
        }
    }

    /// References to the runs.
    pub fn runs(&self) -> Vec<Vec<&HeldOut>> {
        let runs = self.runs.iter();
        runs.map(|arm| arm.iter().map(AsRef::as_ref).collect())
            .collect()
    }

    fn leave_out(&mut self, place: usize, arm: &ArmFindings, why: &'static str) {
        // The failure of a whole arm is reported already.
        if arm
            .arm
            .failures
            .iter()
            .all(|failure| failure.seed.is_some())
        {
            self.left_out.push((place, why));
        }
    }

    /// The arms with the most common set of documents; the earliest set of a tie.
    fn of_the_same_documents(
        &mut self,
        findings: &Findings,
        entrants: Vec<Entrant<'a>>,
    ) -> Vec<Entrant<'a>> {
        let counts = |run: &HeldOut| -> Vec<u64> {
            run.documents
                .iter()
                .map(|document| document.trained)
                .collect()
        };
        let of_arm = |(_, runs): &Entrant<'a>| -> Option<Vec<u64>> {
            let first = counts(&runs[0].1);
            runs.iter()
                .all(|(_, run)| counts(run) == first)
                .then_some(first)
        };
        let documents: Vec<Option<Vec<u64>>> = entrants.iter().map(of_arm).collect();
        let alike = |these: &Vec<u64>| {
            let same = documents.iter().flatten().filter(|others| *others == these);
            same.count()
        };
        let most = documents.iter().flatten().map(alike).max();
        let those = documents
            .iter()
            .flatten()
            .find(|these| Some(alike(these)) == most);
        let those = those.cloned();
        let mut kept = Vec::new();
        for (entrant, documents) in entrants.into_iter().zip(documents) {
            if documents.is_some() && documents == those {
                kept.push(entrant);
            } else {
                let place = entrant.0;
                let why = "was not evaluated on the same held-out documents";
                self.leave_out(place, &findings.arms[place], why);
            }
        }
        kept
    }

    /// The most arms that share enough seeds for a verdict, and their runs under the shared seeds.
    fn of_the_same_seeds(
        &mut self,
        findings: &Findings,
        mut entrants: Vec<Entrant<'a>>,
    ) -> Vec<Entrant<'a>> {
        let enough = (0..entrants.len())
            .flat_map(|second| (0..second).map(move |first| [first, second]))
            .map(|pair| shared(&pair.map(|place| &entrants[place])).len());
        let enough = enough.max().unwrap_or_default().min(FEWEST_SEEDS);
        while entrants.len() > 2 && shared(&entrants.iter().collect::<Vec<_>>()).len() < enough {
            let places = 0..entrants.len();
            // The arm with the fewest seeds, the last of a tie.
            let fewest = places.rev().min_by_key(|at| entrants[*at].1.len());
            let (place, _) = entrants.remove(fewest.expect("more than two"));
            let why = "has too few seeds in common with the others";
            self.leave_out(place, &findings.arms[place], why);
        }
        let seeds = shared(&entrants.iter().collect::<Vec<_>>());
        for (_, runs) in &mut entrants {
            runs.retain(|(seed, _)| seeds.contains(seed));
        }
        if seeds.is_empty() {
            return Vec::new();
        }
        entrants
    }

    fn with(self, entrants: Vec<Entrant<'a>>) -> Self {
        let seeds = entrants.first().map(|(_, runs)| {
            let seeds = runs.iter().map(|(seed, _)| *seed);
            seeds.collect()
        });
        let (places, runs) = entrants
            .into_iter()
            .map(|(place, runs)| (place, runs.into_iter().map(|(_, run)| run).collect()))
            .unzip();
        Contest {
            places,
            seeds: seeds.unwrap_or_default(),
            runs,
            ..self
        }
    }
}

/// The seeds that all of them share, in the first one's order.
fn shared(entrants: &[&Entrant<'_>]) -> Vec<u64> {
    let Some(((_, first), others)) = entrants.split_first() else {
        return Vec::new();
    };
    let seeds = first.iter().map(|(seed, _)| *seed);
    let by_all = |seed: &u64| {
        let has = |(_, runs): &&Entrant<'_>| runs.iter().any(|(other, _)| other == seed);
        others.iter().all(has)
    };
    seeds.filter(by_all).collect()
}

/// Whether the numbers are usable.
fn is_usable(found: &HeldOut) -> bool {
    let total = found.total();
    let mut documents = found.documents.iter();
    is_finite(found)
        && total.trained > 0
        && documents.all(|document| document.trained == 0 || document.loss.abs() < LARGEST_LOSS)
}
