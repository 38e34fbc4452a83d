//! Arms evaluated on the same documents under the same seeds -> the significant differences.
//!
//! All pairs of arms are compared, paired by seed and document. Comparisons with the leader, the
//! arm with the lowest loss, use Holm's step-down procedure. All arms that differ from it at the
//! level of [`range::risk`] for this number of arms are significant. The next step tests the
//! remaining arms at the level of their smaller number. Two arms other than the leader are tested
//! at the level of all arms. The interval of each comparison has the level of its test, so it
//! excludes 0 exactly where the difference is significant.
//!
//! # Source
//! Holm, Scandinavian Journal of Statistics 6, 1979; comparisons with the best: Hsu, "Multiple
//! Comparisons", 1996.

use espalier_trainer::train::HeldOut;

use super::bootstrap::Draws;
use super::difference::{Basis, Difference};
use super::paired::{Paired, Unpaired};
use super::pool::Pool;
use super::range;

/// The results of several arms, by their places among them.
#[derive(Clone, Debug, PartialEq)]
pub struct Family {
    /// The arm with the lowest loss.
    pub leader: usize,
    /// Each arm's mean loss per token over seeds.
    pub means: Vec<f64>,
    /// All pairs of arms.
    pub comparisons: Vec<ComparedPair>,
}

/// Two arms of a family.
#[derive(Clone, Debug, PartialEq)]
pub struct ComparedPair {
    /// Their places; the second's loss is subtracted from the first's.
    pub places: [usize; 2],
    /// Their difference.
    pub difference: Difference,
    /// Whether they differ significantly.
    pub is_significant: bool,
}

impl ComparedPair {
    /// The difference of the arms at `places`, first less second; `None` where it is of another
    /// pair.
    pub fn between(&self, places: [usize; 2]) -> Option<Difference> {
        let [first, second] = places;
        match self.places {
            same if same == places => Some(self.difference.clone()),
            turned if turned == [second, first] => Some(self.difference.reversed()),
            _ => None,
        }
    }
}

impl Family {
    /// Compares arms by their runs, `[K][S]`, with `draws` draws per interval.
    ///
    /// # Errors
    /// [`Unpaired`] where two arms cannot be paired, or there is no arm.
    pub fn compare(runs: &[Vec<&HeldOut>], basis: Basis, draws: u32) -> Result<Self, Unpaired> {
        let losses: Vec<Vec<f64>> = runs.iter().map(|arm| losses(arm)).collect();
        let means: Vec<f64> = losses
            .iter()
            .map(|arm| arm.iter().sum::<f64>() / arm.len() as f64)
            .collect();
        let places = (0..means.len()).min_by(|a, b| means[*a].total_cmp(&means[*b]));
        let leader = places.ok_or(Unpaired::Runs {
            first: 0,
            second: 0,
        })?;
        let pool = Pool::of(&losses);
        let mut compared = Vec::new();
        for second in 0..runs.len() {
            for first in second + 1..runs.len() {
                let places = if first == leader {
                    [second, first]
                } else {
                    [first, second]
                };
                let [a, b] = places.map(|place| &runs[place][..]);
                let paired = Paired::new(a, b)?;
                compared.push((
                    places,
                    paired.clone(),
                    Draws::of(&paired, pool.as_ref(), draws),
                ));
            }
        }
        Ok(Family {
            leader,
            means,
            comparisons: decide(compared, runs.len(), leader, basis),
        })
    }

    /// The comparison of the arm at `place` with the leader: its excess.
    pub fn with_leader(&self, place: usize) -> Option<&ComparedPair> {
        let mut all = self.comparisons.iter();
        all.find(|comparison| comparison.places == [place, self.leader])
    }
}

/// Each run's loss per token.
fn losses(arm: &[&HeldOut]) -> Vec<f64> {
    let loss = |run: &&HeldOut| {
        let total = run.total();
        total.loss / total.trained as f64
    };
    arm.iter().map(loss).collect()
}

fn decide(
    compared: Vec<([usize; 2], Paired, Draws)>,
    arms: usize,
    leader: usize,
    basis: Basis,
) -> Vec<ComparedPair> {
    let freedom: Vec<f64> = compared
        .iter()
        .map(|(_, _, draws)| draws.freedom())
        .collect();
    let with_leader = |places: &[usize; 2]| places[1] == leader;
    // The level of each test; for comparisons with the leader the last level tested.
    let mut risks: Vec<f64> = freedom
        .iter()
        .map(|freedom| range::risk(arms, *freedom))
        .collect();
    let mut left: Vec<usize> = (0..compared.len())
        .filter(|at| with_leader(&compared[*at].0))
        .collect();
    while !left.is_empty() {
        let candidates = left.len() + 1;
        left.iter()
            .for_each(|at| risks[*at] = range::risk(candidates, freedom[*at]));
        let before = left.len();
        left.retain(|at| compared[*at].2.interval(1.0 - risks[*at]).contains(0.0));
        if left.len() == before {
            break;
        }
    }
    let decided = compared.into_iter().zip(risks);
    let decided = decided.map(|((places, paired, draws), risk)| {
        let difference = Difference::at(&paired, &draws, basis, risk);
        ComparedPair {
            places,
            is_significant: difference.has_verdict() && !difference.together.contains(0.0),
            difference,
        }
    });
    decided.collect()
}
