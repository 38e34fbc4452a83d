//! What was found of two arms -> their difference, and what it comes to.

use espalier_system::number::signed;
use espalier_trainer::train::HeldOut;
use serde::Serialize;

use super::facts::{Facts, Measure};
use super::findings::{ArmFindings, Findings};
use crate::statistics::{ComparedPair, Difference, Interval, Needed, Noise, Paired, Unpaired};

/// Two arms and their difference.
#[derive(Clone, Debug, Serialize)]
pub struct Pair {
    /// Places of the arms; what is of the second is taken from what is of the first.
    #[serde(skip)]
    pub places: [usize; 2],
    /// Their names.
    pub arms: [String; 2],
    /// Seeds that the difference is of.
    pub seeds: Vec<u64>,
    /// Their difference in held-out loss; nothing where they cannot be compared.
    pub difference: Option<Difference>,
    /// Why not.
    pub missing: Option<String>,
    /// The difference of their bases before training, over documents.
    pub before: Option<Difference>,
    /// Without training: the difference of their divergences from the dense base, which is what
    /// they are judged by.
    pub divergence: Option<Difference>,
    /// Whether there is a verdict, and it is that they differ, decided among all arms at once.
    pub is_real: bool,
    /// The same: no pair is judged alone.
    pub is_real_together: bool,
    /// Whether they are no further apart than other seeds can make arms that do not differ.
    pub is_below_noise_floor: bool,
    /// What would tell them apart where that was looked for and not found.
    pub needed: Option<Needed>,
    /// Whether it was decided if they differ.
    #[serde(skip)]
    pub is_decided: bool,
    #[serde(skip)]
    measure: Measure,
}

impl Pair {
    /// The difference by which the arms are judged.
    pub fn judged(&self) -> Option<&Difference> {
        match self.measure {
            Measure::HeldOutLoss => self.difference.as_ref(),
            Measure::Divergence => self.divergence.as_ref(),
        }
    }

    /// Whether there is something to show of it: without training, what was not held against the
    /// dense base has nothing.
    pub fn is_shown(&self) -> bool {
        self.measure == Measure::HeldOutLoss || self.divergence.is_some()
    }

    /// What it comes to, in a few words.
    pub fn judgement(&self) -> &'static str {
        match (self.is_decided, self.is_real, self.is_below_noise_floor) {
            (false, _, _) => "no verdict",
            (true, false, _) => "not told apart",
            (true, true, true) => "real, below the noise floor",
            (true, true, false) => "real",
        }
    }
}

/// All pairs of a comparison, those with the dense baseline first; a later arm is compared with an
/// earlier one, and each with the dense baseline. What was decided of them stands in `facts`.
pub fn pairs(findings: &Findings, facts: &Facts, noise: Option<&Noise>, draws: u32) -> Vec<Pair> {
    let mut order: Vec<usize> = (0..findings.arms.len()).collect();
    order.sort_by_key(|place| Some(*place) != findings.dense_baseline());
    let seconds = order.iter().enumerate();
    let places = seconds.flat_map(|(at, second)| {
        let later = order[at + 1..].iter();
        later.map(move |first| [*first, *second])
    });
    places
        .map(|places| pair(findings, facts, places, noise, draws))
        .collect()
}

fn pair(
    findings: &Findings,
    facts: &Facts,
    places: [usize; 2],
    noise: Option<&Noise>,
    draws: u32,
) -> Pair {
    let [first, second] = places.map(|place| &findings.arms[place]);
    let decided = decided(facts, places);
    let before = before(first, second, draws);
    let (seeds, difference) = match (facts.measure, &decided) {
        (Measure::Divergence, _) => (Vec::new(), before.clone()),
        (_, Some((difference, _))) => (facts.seeds.clone(), Ok(difference.clone())),
        (_, None) => after([first, second], findings.step, draws),
    };
    let (difference, missing) = match difference {
        Ok(difference) => (Some(difference), None),
        Err(why) => (None, Some(why)),
    };
    let is_decided = facts.obstacle.is_none() && decided.is_some();
    let is_real = decided.as_ref().is_some_and(|(_, told)| *told);
    let judged = decided.map(|(judged, _)| judged);
    Pair {
        places,
        arms: [first, second].map(|arm| arm.arm.name.clone()),
        seeds,
        is_real,
        is_real_together: is_real,
        is_below_noise_floor: judged
            .as_ref()
            .zip(noise)
            .is_some_and(|(judged, noise)| judged.estimate.abs() < noise.range),
        needed: judged
            .as_ref()
            .filter(|_| is_decided && !is_real)
            .and_then(Needed::of),
        divergence: judged.filter(|_| facts.measure == Measure::Divergence),
        difference,
        missing,
        before: before.ok(),
        is_decided,
        measure: facts.measure,
    }
}

/// What was decided of the arms at `places`, and whether they differ.
fn decided(facts: &Facts, places: [usize; 2]) -> Option<(Difference, bool)> {
    let of = |comparison: &ComparedPair| Some((comparison.between(places)?, comparison.told));
    facts.comparisons.iter().find_map(of)
}

/// The difference after `step` steps of these two arms alone, under the seeds that both have, from
/// `draws` draws.
fn after(
    arms: [&ArmFindings; 2],
    step: Option<u64>,
    draws: u32,
) -> (Vec<u64>, Result<Difference, String>) {
    let Some(step) = step else {
        return (
            Vec::new(),
            Err("no run has been evaluated after training".to_owned()),
        );
    };
    let [first, second] = arms.map(|arm| arm.held_out(step));
    let shared = first.iter().filter_map(|(seed, run)| {
        let (_, other) = second.iter().find(|(other, _)| other == seed)?;
        Some((*seed, (*run, *other)))
    });
    let (seeds, runs): (Vec<u64>, Vec<(&HeldOut, &HeldOut)>) = shared.unzip();
    if seeds.is_empty() {
        return (
            seeds,
            Err(format!(
                "no seed of both has been evaluated after step {step}"
            )),
        );
    }
    let (first, second): (Vec<_>, Vec<_>) = runs.into_iter().unzip();
    let paired = Paired::new(&first, &second).map_err(|why| why.to_string());
    let difference = paired.map(|paired| Difference::trained(&paired, draws));
    (seeds, difference)
}

fn before(first: &ArmFindings, second: &ArmFindings, draws: u32) -> Result<Difference, String> {
    let (Some(first), Some(second)) = (first.before(), second.before()) else {
        return Err("their bases have not been evaluated".to_owned());
    };
    let paired = Paired::new(&[first], &[second]).map_err(|why: Unpaired| why.to_string())?;
    Ok(Difference::untrained(&paired, draws))
}

/// `+0.021 to +0.042`.
pub fn shown(interval: Interval) -> String {
    let [low, high] = interval.0.map(|end| signed(end, shown_width(interval)));
    format!("{low} to {high}")
}

/// The width whose digits are shown of an interval: one more than of itself, so that an end close
/// to 0 is seen to be on its side.
pub fn shown_width(interval: Interval) -> f64 {
    interval.width() / 10.0
}
