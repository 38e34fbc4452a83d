//! The findings of a comparison -> the conclusions about each arm. Headline, sentences, table and
//! figures all use them.

use serde::Serialize;

use super::contest::Contest;
use super::findings::Findings;
use super::quality::Quality;
use crate::statistics::{Basis, ComparedPair, Difference, FEWEST_SEEDS, Family};

/// The verdict of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ComparisonVerdict {
    /// One arm is significantly better than every other.
    OneIsBest,
    /// Several arms do not differ significantly from the best; others do.
    SeveralAreBest,
    /// No arm differs significantly from the best.
    AllAlike,
    /// An obstacle prevents a verdict.
    NoVerdict,
    /// Fewer than two arms have comparable losses.
    NothingToCompare,
}

/// The measure by which arms are ranked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// The loss on held-out documents after training.
    HeldOutLoss,
    /// Without training: the divergence of the base's predictions from the dense base's.
    Divergence,
}

/// Why there is no verdict.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Obstacle {
    /// Too few seeds to estimate the effect of another seed.
    FewSeeds,
    /// A single document does not generalize to others.
    FewDocuments,
    /// Nothing was trained, and there is no dense arm to compare bases with.
    NoDense,
    /// The lowest loss is above that of a uniform distribution over the tokens.
    WorseThanGuessing {
        /// The lowest loss.
        loss: f64,
        /// Vocabulary size.
        vocab: u64,
    },
}

/// The conclusion about an arm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// It is significantly better than every other ranked arm.
    Best,
    /// It has the lowest mean, but some arm does not differ significantly from it.
    Lowest,
    /// It does not differ significantly from the leader.
    NotToldApart,
    /// It is significantly worse than the leader.
    Worse,
    /// It is the baseline of the others and is not ranked.
    #[serde(rename = "yardstick")]
    DenseBaseline,
    /// It is not ranked.
    #[default]
    NoVerdict,
}

/// The conclusions of a comparison.
#[derive(Clone, Debug, PartialEq)]
pub struct Facts {
    /// The verdict.
    pub verdict: ComparisonVerdict,
    /// The measure by which arms are ranked.
    pub measure: Measure,
    /// Why there is no verdict.
    pub obstacle: Option<Obstacle>,
    /// The place of the leader: the arm with the lowest mean.
    pub leader: Option<usize>,
    /// Its mean, nats per token.
    pub lowest: f64,
    /// The conclusion about each arm, by its place.
    pub standings: Vec<Standing>,
    /// All pairs of comparable arms, by their places.
    pub comparisons: Vec<ComparedPair>,
    /// The seeds of the verdict.
    pub seeds: Vec<u64>,
    /// Documents and tokens of the verdict.
    pub extent: [u64; 2],
    /// Arms left out, and the reasons.
    pub left_out: Vec<(usize, &'static str)>,
}

impl Facts {
    /// Draws the conclusions, with `draws` draws per interval.
    pub fn of(findings: &Findings, draws: u32) -> Self {
        let (measure, contest) = match (findings.comparison.eval_only, findings.step) {
            (true, _) => (Measure::Divergence, Contest::bases(findings)),
            (false, Some(step)) => (Measure::HeldOutLoss, Contest::trained(findings, step)),
            (false, None) => (Measure::HeldOutLoss, Contest::default()),
        };
        let mut facts = Facts {
            verdict: ComparisonVerdict::NothingToCompare,
            measure,
            obstacle: None,
            leader: None,
            lowest: f64::NAN,
            standings: vec![Standing::NoVerdict; findings.arms.len()],
            comparisons: Vec::new(),
            seeds: contest.seeds.clone(),
            extent: extent(&contest),
            left_out: contest.left_out.clone(),
        };
        if let (Measure::Divergence, Some(dense_baseline)) = (measure, findings.dense_baseline()) {
            facts.standings[dense_baseline] = Standing::DenseBaseline;
        }
        let basis = match measure {
            Measure::HeldOutLoss => Basis::of_seeds(contest.seeds.len()),
            Measure::Divergence => Basis::Documents,
        };
        let family = if contest.places.is_empty() {
            None
        } else {
            Family::compare(&contest.runs(), basis, draws).ok()
        };
        if let Some(family) = &family {
            facts.take(family, &contest.places);
        }
        facts.obstacle = facts.obstacle(findings);
        facts.set_verdict(contest.places.len());
        facts
    }

    /// The comparison of the arm at `place` with the leader: its excess.
    pub fn above(&self, place: usize) -> Option<&Difference> {
        let leader = self.leader?;
        let mut all = self.comparisons.iter();
        let found = all.find(|comparison| comparison.places == [place, leader])?;
        Some(&found.difference)
    }

    /// Whether the arm at `place` is compared with others after training.
    pub fn takes_part(&self, place: usize) -> bool {
        let mut all = self.comparisons.iter();
        let is_trained = self.measure == Measure::HeldOutLoss;
        is_trained && all.any(|comparison| comparison.places.contains(&place))
    }

    /// The places of the arms with `standing`, nearest to the leader first.
    pub fn those(&self, standing: Standing) -> Vec<usize> {
        let places = 0..self.standings.len();
        let mut those: Vec<usize> = places
            .filter(|at| self.standings[*at] == standing)
            .collect();
        let above = |at: &usize| self.above(*at).map_or(0.0, |above| above.estimate);
        those.sort_by(|a, b| above(a).total_cmp(&above(b)));
        those
    }

    /// Pairs that differ significantly though neither leads nor differs from the leader; the better
    /// arm second.
    pub fn other_significant_pairs(&self) -> Vec<[usize; 2]> {
        let untold = |place: &usize| self.standings[*place] == Standing::NotToldApart;
        let told = self
            .comparisons
            .iter()
            .filter(|comparison| comparison.is_significant);
        let beside = told.filter(|comparison| comparison.places.iter().all(untold));
        let ordered = |comparison: &ComparedPair| {
            if comparison.difference.estimate > 0.0 {
                comparison.places
            } else {
                [comparison.places[1], comparison.places[0]]
            }
        };
        beside.map(ordered).collect()
    }

    /// Stores the result of a family of arms at `places`.
    fn take(&mut self, family: &Family, places: &[usize]) {
        self.leader = Some(places[family.leader]);
        self.lowest = family.means[family.leader];
        let placed = |comparison: &ComparedPair| ComparedPair {
            places: comparison.places.map(|at| places[at]),
            ..comparison.clone()
        };
        self.comparisons = family.comparisons.iter().map(placed).collect();
    }

    fn obstacle(&self, findings: &Findings) -> Option<Obstacle> {
        let measured = findings.arms.iter().any(|arm| arm.base.is_some());
        if self.measure == Measure::Divergence && findings.dense_baseline().is_none() && measured {
            return Some(Obstacle::NoDense);
        }
        self.leader?;
        if let Some(worse) = worse_than_guessing(findings, self) {
            return Some(worse);
        }
        if self.comparisons.is_empty() {
            return None;
        }
        let few_seeds = self.seeds.len() < FEWEST_SEEDS;
        match self.measure {
            Measure::HeldOutLoss if few_seeds => Some(Obstacle::FewSeeds),
            _ if self.extent[0] < 2 => Some(Obstacle::FewDocuments),
            _ => None,
        }
    }

    /// Sets the verdict and each arm's standing; `arms` is the number of ranked arms.
    fn set_verdict(&mut self, arms: usize) {
        if self.obstacle.is_some() {
            self.verdict = ComparisonVerdict::NoVerdict;
            self.comparisons
                .iter_mut()
                .for_each(|comparison| comparison.is_significant = false);
            return;
        }
        let Some(leader) = self.leader.filter(|_| arms > 1) else {
            return;
        };
        let mut told = 0;
        let with_leader = self
            .comparisons
            .iter()
            .filter(|comparison| comparison.places[1] == leader);
        for comparison in with_leader {
            told += usize::from(comparison.is_significant);
            self.standings[comparison.places[0]] = if comparison.is_significant {
                Standing::Worse
            } else {
                Standing::NotToldApart
            };
        }
        let (verdict, standing) = match told {
            0 => (ComparisonVerdict::AllAlike, Standing::Lowest),
            all if all == arms - 1 => (ComparisonVerdict::OneIsBest, Standing::Best),
            _ => (ComparisonVerdict::SeveralAreBest, Standing::Lowest),
        };
        self.verdict = verdict;
        self.standings[leader] = standing;
    }
}

/// Documents with trained tokens, and these tokens.
fn extent(contest: &Contest<'_>) -> [u64; 2] {
    let run = contest.runs.first().and_then(|arm| arm.first());
    run.map_or([0, 0], |run| {
        let bearing = run.documents.iter().filter(|document| document.trained > 0);
        [bearing.count() as u64, run.total().trained]
    })
}

/// Whether the model predicts these documents worse than a uniform distribution over the tokens.
/// Checks the best trained arm, or without training the dense one.
fn worse_than_guessing(findings: &Findings, facts: &Facts) -> Option<Obstacle> {
    let bases = findings.arms.iter().filter_map(|arm| arm.base.as_ref());
    let vocab = bases
        .map(|base| base.vocab)
        .max()
        .filter(|vocab| *vocab > 1)?;
    let loss = match facts.measure {
        Measure::HeldOutLoss => facts.lowest,
        Measure::Divergence => {
            let dense = &findings.arms[findings.dense_baseline()?];
            Quality::of(dense.before()?.total())?.loss
        }
    };
    (loss > (vocab as f64).ln()).then_some(Obstacle::WorseThanGuessing { loss, vocab })
}
