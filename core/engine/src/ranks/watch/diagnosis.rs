//! The status of all ranks -> the lost rank, if there is one.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;

use super::rank_status::{Call, Report};
use crate::ranks::lost::{Lost, LostBy};

/// The lost rank according to `reports`, all of the same time.
pub fn diagnose(reports: &[Report], timeout_ms: u64) -> Option<Lost> {
    other_call(reports).or_else(|| hanging(reports, timeout_ms))
}

/// The rank of `reports`, none of `lost`, that waits longest in a call, and the call.
pub fn longest_waiting(reports: &[Report], lost: Range<u32>) -> Option<(u32, String)> {
    let open = reports
        .iter()
        .filter(|report| !lost.contains(&report.rank))
        .flat_map(|report| report.open.iter().map(move |open| (report.rank, open)));
    let longest = open.min_by_key(|(rank, open)| (Reverse(open.ms), *rank));
    longest.map(|(rank, open)| (rank, open.call.to_string()))
}

/// The step that the run is in. Ranks run in step, but a lost one may have reported an older step.
pub fn newest_step(reports: &[Report]) -> u64 {
    reports.iter().map(|report| report.step).max().unwrap_or(0)
}

/// A rank whose call differs from what most ranks make under the same number.
fn other_call(reports: &[Report]) -> Option<Lost> {
    let mut made = BTreeMap::<(&str, u64), Vec<(&Report, &Call)>>::new();
    for report in reports {
        for call in &report.entered {
            let key = (call.group.as_str(), call.seq);
            made.entry(key).or_default().push((report, call));
        }
    }
    made.values().find_map(|made| {
        let alike = |call: &Call| {
            made.iter()
                .filter(|(_, other)| other.what == call.what)
                .count()
        };
        let most = made.iter().map(|(_, call)| alike(call)).max()?;
        let (other, expected) = made.iter().find(|(_, call)| alike(call) == most)?;
        let (report, found) = made.iter().find(|(_, call)| call.what != expected.what)?;
        let cause = LostBy::OtherCall {
            found: found.to_string(),
            other: other.rank,
            expected: expected.to_string(),
        };
        Some(Lost {
            step: report.step,
            ..Lost::of(report.rank, cause)
        })
    })
}

/// A silent rank that another one waits for.
fn hanging(reports: &[Report], timeout_ms: u64) -> Option<Lost> {
    // The others have waited for some time, so a rank that is only a little late does not count.
    let long = timeout_ms / 4;
    let waited_for = reports
        .iter()
        .flat_map(|report| &report.open)
        .filter(|open| open.ms >= long)
        .map(|open| &open.call);
    let silent = waited_for.flat_map(|call| {
        reports.iter().filter(move |report| {
            report.quiet_ms >= timeout_ms && report.busy.is_none() && !has_entered(report, call)
        })
    });
    // A rank that waits itself may wait for the one that hangs.
    let lost = silent.min_by_key(|report| (report.open.len(), report.rank))?;
    Some(Lost {
        step: lost.step,
        place: lost.place(),
        waiting: longest_waiting(reports, lost.rank..lost.rank + 1),
        ..Lost::of(lost.rank, LostBy::Hangs(lost.quiet_ms / 1000))
    })
}

fn has_entered(report: &Report, call: &Call) -> bool {
    let newest = report
        .entered
        .iter()
        .rev()
        .find(|entered| entered.group == call.group);
    newest.is_some_and(|entered| entered.seq >= call.seq)
}

#[cfg(test)]
mod tests;
