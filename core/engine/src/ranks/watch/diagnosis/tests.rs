//! Statuses of ranks -> the rank that is lost, and why.

use super::*;
use crate::ranks::lost::CallPosition;
use crate::ranks::watch::rank_status::OpenCall;

fn call(seq: u64, what: &str) -> Call {
    Call {
        group: "shards".into(),
        seq,
        what: what.into(),
    }
}

/// A rank that entered `calls`, is in none of them, and was last heard of `quiet_ms` ago.
fn outside(rank: u32, calls: &[Call], quiet_ms: u64) -> Report {
    Report {
        rank,
        step: 3,
        quiet_ms,
        busy: None,
        open: Vec::new(),
        entered: calls.to_vec(),
    }
}

/// A rank that is in the last of `calls`, and was last heard of `quiet_ms` ago.
fn inside(rank: u32, calls: &[Call], quiet_ms: u64) -> Report {
    let open = calls.last().map(|call| OpenCall {
        call: call.clone(),
        ms: quiet_ms,
    });
    Report {
        open: open.into_iter().collect(),
        ..outside(rank, calls, quiet_ms)
    }
}

#[test]
fn a_silent_rank_hangs_only_while_another_waits_for_it() {
    let (first, second) = (call(1, "a"), call(2, "b"));
    let gone_on = [first.clone(), second];
    let waits = inside(0, &gone_on, 8100);
    let silent = outside(1, std::slice::from_ref(&first), 8200);
    let lost = diagnose(&[waits.clone(), silent.clone()], 8000).expect("it hangs");
    assert_eq!((lost.rank, lost.step), (1, 3));
    assert_eq!(
        lost.place,
        CallPosition::After("call 1 of shards, a".into())
    );
    assert_eq!(lost.waiting, Some((0, "call 2 of shards, b".into())));
    assert_eq!(lost.cause, LostBy::Hangs(8));

    let computes = outside(0, &gone_on, 100);
    assert_eq!(diagnose(&[computes, silent.clone()], 8000), None);
    let mut saves = silent.clone();
    saves.busy = Some("fsync".into());
    assert_eq!(diagnose(&[waits.clone(), saves], 8000), None);
    let lives = outside(1, std::slice::from_ref(&first), 100);
    assert_eq!(diagnose(&[waits.clone(), lives], 8000), None);
    let both_inside = inside(1, &gone_on, 9000);
    assert_eq!(
        diagnose(&[waits, both_inside], 8000),
        None,
        "a slow transfer"
    );
}

#[test]
fn of_two_silent_ranks_the_one_that_waits_for_nobody_hangs() {
    let (first, second) = (call(1, "a"), call(2, "b"));
    let waits = inside(0, &[first.clone(), second], 9000);
    let waits_earlier = inside(1, std::slice::from_ref(&first), 9000);
    let hangs = outside(2, &[], 9000);
    let lost = diagnose(&[waits, waits_earlier, hangs], 8000).expect("it hangs");
    assert_eq!(lost.rank, 2);
}

#[test]
fn the_rank_that_makes_another_call_than_most_is_named() {
    let common = [call(1, "a"), call(2, "gather unit 1")];
    let other = [call(1, "a"), call(2, "reduce unit 1")];
    let reports = [
        inside(0, &other, 10),
        inside(1, &common, 10),
        inside(2, &common, 10),
    ];
    let lost = diagnose(&reports, 8000).expect("they differ");
    assert_eq!(lost.rank, 0);
    let expected = LostBy::OtherCall {
        found: "call 2 of shards, reduce unit 1".into(),
        other: 1,
        expected: "call 2 of shards, gather unit 1".into(),
    };
    assert_eq!(lost.cause, expected);
    let one_ahead = [inside(0, &common, 10), outside(1, &common[..1], 10)];
    assert_eq!(diagnose(&one_ahead, 8000), None);
}
