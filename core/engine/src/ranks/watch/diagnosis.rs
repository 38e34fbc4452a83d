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
mod tests {
    use super::*;
    use crate::ranks::lost::Place;
    use crate::ranks::watch::rank_status::OpenCall;

    fn call(seq: u64, what: &str) -> Call {
        Call {
            group: "shards".into(),
            seq,
            what: what.into(),
        }
    }

    /// A rank that entered `calls`, is in the last of them if `open`, and was last heard of
    /// `quiet_ms` ago.
    fn rank(rank: u32, calls: &[Call], open: bool, quiet_ms: u64) -> Report {
        let inside = calls.last().filter(|_| open).map(|call| OpenCall {
            call: call.clone(),
            ms: quiet_ms,
        });
        Report {
            rank,
            step: 3,
            quiet_ms,
            busy: None,
            open: inside.into_iter().collect(),
            entered: calls.to_vec(),
        }
    }

    #[test]
    fn a_silent_rank_hangs_only_while_another_waits_for_it() {
        let (first, second) = (call(1, "a"), call(2, "b"));
        let gone_on = [first.clone(), second];
        let waits = rank(0, &gone_on, true, 8100);
        let silent = rank(1, std::slice::from_ref(&first), false, 8200);
        let lost = diagnose(&[waits.clone(), silent.clone()], 8000).expect("it hangs");
        assert_eq!((lost.rank, lost.step), (1, 3));
        assert_eq!(lost.place, Place::After("call 1 of shards, a".into()));
        assert_eq!(lost.waiting, Some((0, "call 2 of shards, b".into())));
        assert_eq!(lost.cause, LostBy::Hangs(8));

        let computes = rank(0, &gone_on, false, 100);
        assert_eq!(diagnose(&[computes, silent.clone()], 8000), None);
        let mut saves = silent.clone();
        saves.busy = Some("fsync".into());
        assert_eq!(diagnose(&[waits.clone(), saves], 8000), None);
        let lives = rank(1, std::slice::from_ref(&first), false, 100);
        assert_eq!(diagnose(&[waits.clone(), lives], 8000), None);
        let both_inside = rank(1, &gone_on, true, 9000);
        assert_eq!(
            diagnose(&[waits, both_inside], 8000),
            None,
            "a slow transfer"
        );
    }

    #[test]
    fn of_two_silent_ranks_the_one_that_waits_for_nobody_hangs() {
        let (first, second) = (call(1, "a"), call(2, "b"));
        let waits = rank(0, &[first.clone(), second], true, 9000);
        let waits_earlier = rank(1, std::slice::from_ref(&first), true, 9000);
        let hangs = rank(2, &[], false, 9000);
        let lost = diagnose(&[waits, waits_earlier, hangs], 8000).expect("it hangs");
        assert_eq!(lost.rank, 2);
    }

    #[test]
    fn the_rank_that_makes_another_call_than_most_is_named() {
        let common = [call(1, "a"), call(2, "gather unit 1")];
        let other = [call(1, "a"), call(2, "reduce unit 1")];
        let reports = [
            rank(0, &other, true, 10),
            rank(1, &common, true, 10),
            rank(2, &common, true, 10),
        ];
        let lost = diagnose(&reports, 8000).expect("they differ");
        assert_eq!(lost.rank, 0);
        let expected = LostBy::OtherCall {
            found: "call 2 of shards, reduce unit 1".into(),
            other: 1,
            expected: "call 2 of shards, gather unit 1".into(),
        };
        assert_eq!(lost.cause, expected);
        let one_ahead = [rank(0, &common, true, 10), rank(1, &common[..1], false, 10)];
        assert_eq!(diagnose(&one_ahead, 8000), None);
    }
}
