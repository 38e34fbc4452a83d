//! The bits chosen for the memory of an arm, and that arm -> a sentence on their difference.

use espalier_system::number::signed;

use super::facts::{Facts, Measure};
use super::findings::Findings;
use super::pair::{shown, shown_width};
use super::row::ArmRow;

/// One sentence for each arm whose bits were chosen for another's memory, where both were compared.
pub(super) fn sentences(findings: &Findings, facts: &Facts, rows: &[ArmRow]) -> Vec<String> {
    let places = 0..rows.len();
    places
        .filter_map(|place| sentence(findings, facts, rows, place))
        .collect()
}

fn sentence(findings: &Findings, facts: &Facts, rows: &[ArmRow], chosen: usize) -> Option<String> {
    let name = findings.arms[chosen].arm.same_memory_as.as_deref()?;
    let uniform = rows.iter().position(|row| row.name == name)?;
    if facts.obstacle.is_some() {
        return None;
    }
    let mut compared = facts.comparisons.iter();
    let (difference, is_significant) = compared.find_map(|pair| {
        let difference = pair.between([uniform, chosen])?;
        Some((difference, pair.is_significant))
    })?;
    let chosen = &rows[chosen].name;
    if difference.estimate == 0.0 {
        return Some(format!(
            "In the memory of {name}, {chosen} does not differ from it."
        ));
    }
    let (lower, higher) = match facts.measure {
        Measure::Divergence => ("is closer to the dense base", "is farther from it"),
        Measure::HeldOutLoss => ("has a lower loss", "has a higher loss"),
    };
    let what = match (is_significant, difference.estimate > 0.0) {
        (false, _) => "cannot be distinguished from it",
        (true, true) => lower,
        (true, false) => higher,
    };
    let interval = difference.together;
    Some(format!(
        "In the memory of {name}, {chosen} {what}: {name} is above it by {} ({}).",
        signed(difference.estimate, shown_width(interval)),
        shown(interval)
    ))
}
