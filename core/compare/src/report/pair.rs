//! The findings of two arms -> their difference and its significance.

use espalier_system::number::signed;
use espalier_trainer::train::HeldOut;
use serde::Serialize;

use super::facts::{Facts, Measure};
use super::findings::{ArmFindings, Findings};
use crate::statistics::{ComparedPair, Difference, Interval, Needed, Noise, Paired, Unpaired};

/// Two arms and their difference.
#[derive(Clone, Debug, Serialize)]
pub struct Pair {
    /// Places of the arms; the second's numbers are subtracted from the first's.
    #[serde(skip)]
    pub places: [usize; 2],
    /// Their names.
    pub arms: [String; 2],
    /// Seeds of the difference.
    pub seeds: Vec<u64>,
    /// Their difference in held-out loss; `None` where they cannot be compared.
    pub difference: Option<Difference>,
    /// Why they cannot be compared.
    pub missing: Option<String>,
    /// The difference of their bases before training, over documents.
    pub before: Option<Difference>,
    /// Without training: the difference of their divergences from the dense base, by which they are
    /// ranked.
    pub divergence: Option<Difference>,
    /// Whether they differ significantly, decided among all arms at once.
    pub is_real: bool,
    /// Equal to `is_real`: no pair is decided alone.
    pub is_real_together: bool,
    /// Whether the difference is within the range that other seeds cause between equal arms.
    pub is_below_noise_floor: bool,
    /// Seeds and documents that would make the difference significant, where it was tested and is
    /// not.
    pub needed: Option<Needed>,
    /// Whether the difference was tested.
    #[serde(skip)]
    pub is_decided: bool,
    #[serde(skip)]
    measure: Measure,
}

impl Pair {
    /// The difference by which the arms are ranked.
    pub fn ranked_by(&self) -> Option<&Difference> {
        match self.measure {
            Measure::HeldOutLoss => self.difference.as_ref(),
            Measure::Divergence => self.divergence.as_ref(),
        }
    }

    /// Whether the pair is shown: without training, only pairs compared with the dense base are.
    pub fn is_shown(&self) -> bool {
        self.measure == Measure::HeldOutLoss || self.divergence.is_some()
    }

    /// The conclusion in a few words.
    pub fn conclusion(&self) -> &'static str {
        match (self.is_decided, self.is_real, self.is_below_noise_floor) {
            (false, _, _) => "no verdict",
            (true, false, _) => "no significant difference",
            (true, true, true) => "real, below the noise floor",
            (true, true, false) => "real",
        }
    }
}

/// All pairs of a comparison, those with the dense baseline first. A later arm is compared with an
/// earlier one, and each with the dense baseline. The conclusions are in `facts`.
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
    let is_real = decided
        .as_ref()
        .is_some_and(|(_, is_significant)| *is_significant);
    let tested = decided.map(|(difference, _)| difference);
    Pair {
        places,
        arms: [first, second].map(|arm| arm.arm.name.clone()),
        seeds,
        is_real,
        is_real_together: is_real,
        is_below_noise_floor: tested
            .as_ref()
            .zip(noise)
            .is_some_and(|(difference, noise)| difference.estimate.abs() < noise.range),
        needed: tested
            .as_ref()
            .filter(|_| is_decided && !is_real)
            .and_then(Needed::of),
        divergence: tested.filter(|_| facts.measure == Measure::Divergence),
        difference,
        missing,
        before: before.ok(),
        is_decided,
        measure: facts.measure,
    }
}

/// The tested difference of the arms at `places`, and whether it is significant.
fn decided(facts: &Facts, places: [usize; 2]) -> Option<(Difference, bool)> {
    let of =
        |comparison: &ComparedPair| Some((comparison.between(places)?, comparison.is_significant));
    facts.comparisons.iter().find_map(of)
}

/// The difference of these two arms alone after `step` steps, under their shared seeds, from
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

/// The width that sets the printed digits of an interval. It gives one digit more than the
/// interval's own width, so that the sign of an end close to 0 is visible.
pub fn shown_width(interval: Interval) -> f64 {
    interval.width() / 10.0
}
