//! What was found of two arms -> whether they differ.

use serde::Serialize;

use super::findings::{ArmFindings, Findings};
use crate::compare::record::HeldOut;
use crate::compare::statistics::{DRAWS, Difference, Noise, Paired, Unpaired};

/// Two arms and their difference.
#[derive(Clone, Debug, Serialize)]
pub struct Pair {
    /// Places of the arms; the loss of the second is taken from that of the first.
    #[serde(skip)]
    pub places: [usize; 2],
    /// Their names.
    pub arms: [String; 2],
    /// Seeds that both have.
    pub seeds: Vec<u64>,
    /// Their difference in held-out loss; nothing where they cannot be compared.
    pub difference: Option<Difference>,
    /// Why not.
    pub missing: Option<String>,
    /// The difference of their bases before training, over documents.
    pub before: Option<Difference>,
    /// Whether there is a verdict, and it is that they differ.
    pub is_real: bool,
    /// Whether they differ where all pairs are judged at once.
    pub is_real_together: bool,
    /// Whether they are no further apart than other seeds can make arms that do not differ.
    pub is_below_noise_floor: bool,
}

/// All pairs of a comparison, those with the yardstick first; a later arm is compared with an earlier
/// one, and each with the yardstick.
pub fn pairs(findings: &Findings, noise: Option<&Noise>) -> Vec<Pair> {
    let mut order: Vec<usize> = (0..findings.arms.len()).collect();
    order.sort_by_key(|place| Some(*place) != findings.yardstick());
    let count = order.len() * order.len().saturating_sub(1) / 2;
    let seconds = order.iter().enumerate();
    let places = seconds.flat_map(|(at, second)| {
        let later = order[at + 1..].iter();
        later.map(move |first| [*first, *second])
    });
    places
        .map(|places| pair(findings, places, count, noise))
        .collect()
}

fn pair(findings: &Findings, places: [usize; 2], count: usize, noise: Option<&Noise>) -> Pair {
    let [first, second] = places.map(|place| &findings.arms[place]);
    let before = before(first, second, count);
    let (seeds, difference) = if findings.comparison.eval_only {
        (Vec::new(), before.clone())
    } else {
        after([first, second], findings.step, count, DRAWS)
    };
    let (difference, missing) = match difference {
        Ok(difference) => (Some(difference), None),
        Err(why) => (None, Some(why)),
    };
    let judged = difference.as_ref();
    Pair {
        places,
        arms: [first, second].map(|arm| arm.arm.name.clone()),
        seeds,
        is_real: judged.is_some_and(Difference::is_real),
        is_real_together: judged.is_some_and(Difference::is_real_together),
        is_below_noise_floor: judged
            .zip(noise)
            .is_some_and(|(judged, noise)| judged.estimate.abs() < noise.range),
        difference,
        missing,
        before: before.ok(),
    }
}

/// The difference after `step` steps, under the seeds that both arms have, from `draws` draws.
pub fn after(
    arms: [&ArmFindings; 2],
    step: Option<u64>,
    pairs: usize,
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
    let difference = paired.map(|paired| Difference::trained(&paired, pairs, draws));
    (seeds, difference)
}

fn before(first: &ArmFindings, second: &ArmFindings, pairs: usize) -> Result<Difference, String> {
    let (Some(first), Some(second)) = (first.before(), second.before()) else {
        return Err("their bases have not been evaluated".to_owned());
    };
    let paired = Paired::new(&[first], &[second]).map_err(|why: Unpaired| why.to_string())?;
    Ok(Difference::untrained(&paired, pairs, DRAWS))
}
