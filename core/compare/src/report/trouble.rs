//! Failures, arms left out and unreadable files -> a sentence each.

use super::enumeration::listed;
use super::facts::{Facts, Obstacle};
use super::findings::Findings;

/// The sentences; empty without failures.
pub fn sentences(findings: &Findings, facts: &Facts) -> Vec<String> {
    let failures = findings.arms.iter().flat_map(|arm| {
        arm.arm.failures.iter().map(|failure| match failure.seed {
            Some(seed) => format!(
                "{} failed under seed {seed} after step {}: {}.",
                arm.arm.name, failure.step, failure.message
            ),
            None => format!("{} failed: {}.", arm.arm.name, failure.message),
        })
    });
    let mut reasons: Vec<(&str, Vec<String>)> = Vec::new();
    // Where no arm is ranked because there is no dense arm, that is reported once.
    let ranked = facts.obstacle != Some(Obstacle::NoDense);
    for (place, why) in facts.left_out.iter().filter(|_| ranked) {
        let name = findings.arms[*place].arm.name.clone();
        match reasons.iter_mut().find(|(known, _)| known == why) {
            Some((_, names)) => names.push(name),
            None => reasons.push((why, vec![name])),
        }
    }
    let left_out = reasons
        .iter()
        .map(|(why, names)| format!("Not judged: {} ({why}).", listed(names)));
    let notes = findings.notes.iter().map(|note| format!("{note}."));
    failures.chain(left_out).chain(notes).collect()
}
