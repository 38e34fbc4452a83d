//! A whole schedule stays valid, and each fault in it is named.

mod backward_update;

use super::*;
use crate::schedule::{Action, MicroBatch, Part, Place, Placement, UnitBytes, When};

/// An embedding, a layer and a head on two ranks. The head also reads the embedding; only the layer
/// is trained.
fn request() -> ShardingRequest {
    let unit = |name: &str, trainable: u64, forward: &[usize], backward: &[usize]| UnitBytes {
        name: name.to_owned(),
        frozen: 8,
        trainable,
        gradients: trainable,
        optimizer: 2 * trainable,
        saved: 16,
        forward_reads: forward.to_vec(),
        backward_reads: backward.to_vec(),
    };
    ShardingRequest {
        units: vec![
            unit("embedding", 0, &[0], &[]),
            unit("layer", 4, &[1], &[1]),
            unit("head", 0, &[0, 2], &[]),
        ],
        world: 2,
        ranks_per_machine: 2,
        ..ShardingRequest::default()
    }
}

fn moving(act: Act, unit: usize, parts: &[Part]) -> Action {
    Action::moving(act, unit, parts).on(1)
}

/// Everything is offloaded, and every unit is fetched right before it is read.
fn offloaded(request: &ShardingRequest) -> Schedule {
    let mut micro_batch = MicroBatch::new(request);
    let passes: Vec<Vec<usize>> = request
        .passes()
        .iter()
        .map(|pass| pass.reads.to_vec())
        .collect();
    for (pass, reads) in passes.iter().enumerate() {
        for &unit in reads {
            let parts: &[Part] = if request.trains(unit) {
                &[Part::Frozen, Part::Trainable]
            } else {
                &[Part::Frozen]
            };
            micro_batch.before(pass, moving(Act::Fetch, unit, parts));
            micro_batch.before(pass, moving(Act::Gather, unit, parts));
            micro_batch.after(pass, moving(Act::Release, unit, parts));
        }
    }
    let last = |act| moving(act, 1, &[Part::Gradients]).when(When::Last);
    micro_batch.reduce(1);
    let mut actions = micro_batch.into_actions();
    actions.push(last(Act::Offload));
    let on_host = Placement {
        frozen: Place::ShardedOnHost,
        trainable: Place::ShardedOnHost,
        optimizer: Place::ShardedOnHost,
    };
    Schedule {
        placements: vec![on_host; request.units.len()],
        micro_batch: actions,
        update: vec![
            moving(
                Act::Fetch,
                1,
                &[Part::Trainable, Part::Gradients, Part::Optimizer],
            ),
            Action::new(Act::Optimize, 1),
            moving(Act::Release, 1, &[Part::Gradients]),
            moving(Act::Offload, 1, &[Part::Trainable, Part::Optimizer]),
        ],
        ..Schedule::default()
    }
}

fn refused(schedule: &Schedule, request: &ShardingRequest) -> String {
    schedule.validate(request).expect_err("refused").message
}

#[test]
fn each_action_of_a_schedule_is_needed() {
    let request = request();
    let whole = offloaded(&request);
    whole.validate(&request).expect("valid");
    assert_eq!(whole.most_gathered(&request), Ok(2));
    for missing in 0..whole.micro_batch.len() {
        let mut schedule = whole.clone();
        let action = schedule.micro_batch.remove(missing);
        let found = schedule.validate(&request);
        assert!(found.is_err(), "valid without action {missing}: {action:?}");
    }
    for missing in 0..whole.update.len() {
        let mut schedule = whole.clone();
        let action = schedule.update.remove(missing);
        let found = schedule.validate(&request);
        assert!(
            found.is_err(),
            "valid without update action {missing}: {action:?}"
        );
    }
}

#[test]
fn state_of_no_bytes_may_be_moved_or_left_out() {
    let mut request = request();
    request.units[1].optimizer = 0;
    let named = offloaded(&request);
    named.validate(&request).expect("a part of no bytes");
    let mut left_out = named.clone();
    for action in &mut left_out.update {
        action.parts.retain(|part| *part != Part::Optimizer);
    }
    left_out.validate(&request).expect("without that part");
    let mut untrained = named;
    untrained.update[0].unit = 0;
    assert!(refused(&untrained, &request).contains("no Trainable bytes"));
}

#[test]
fn no_action_takes_place_twice_and_computing_comes_after_bringing() {
    let request = request();
    let whole = offloaded(&request);
    for twice in 0..whole.micro_batch.len() {
        let mut schedule = whole.clone();
        let action = schedule.micro_batch[twice].clone();
        schedule.micro_batch.insert(twice, action.clone());
        let found = schedule.validate(&request);
        assert!(
            found.is_err(),
            "valid with action {twice} twice: {action:?}"
        );
    }
    for (at, pair) in whole.micro_batch.windows(2).enumerate() {
        // Weights may be released before or after gradients are reduced.
        let either = pair[0].act == Act::Release && pair[1].act == Act::Reduce;
        if pair[0].unit == pair[1].unit && !either {
            let mut schedule = whole.clone();
            schedule.micro_batch.swap(at, at + 1);
            let found = schedule.validate(&request);
            assert!(found.is_err(), "valid with actions swapped: {pair:?}");
        }
    }
}

#[test]
fn what_is_wrong_is_named() {
    let request = request();
    type Change = fn(&mut Schedule);
    let cases: [(Change, &str); 13] = [
        (|one| one.placements.truncate(2), "2 placements for 3 units"),
        (
            |one| one.shard_ranks = 3,
            "groups of 3 ranks share what is cut",
        ),
        (
            |one| one.placements[1].trainable = Place::Host,
            "the machine's one copy",
        ),
        (
            |one| one.placements[1].optimizer = Place::Replicated,
            "both cut or neither",
        ),
        (|one| one.micro_batch[0].unit = 3, "there are 3 units"),
        (
            |one| one.micro_batch[1].after = vec![1],
            "waits for action 1, which is not before it",
        ),
        (
            |one| one.micro_batch[2].stream = 1,
            "is on stream 1: expected 0",
        ),
        (|one| one.micro_batch[1].stream = 0, "expected all on one"),
        (
            |one| one.micro_batch[0].parts.push(Part::Trainable),
            "has no Trainable bytes",
        ),
        (
            |one| one.micro_batch[0].when = When::First,
            "was not fetched",
        ),
        (
            |one| one.micro_batch[3].when = When::Last,
            "were fetched already",
        ),
        (
            |one| drop(one.micro_batch.remove(1)),
            "(Forward of unit 0), micro-batch 1 of 1: it reads unit 0",
        ),
        (
            |one| drop(one.update.remove(1)),
            "were not fetched and updated",
        ),
    ];
    for (change, words) in cases {
        let mut schedule = offloaded(&request);
        change(&mut schedule);
        let message = refused(&schedule, &request);
        assert!(message.contains(words), "expected {words}, found {message}");
    }
}

/// One rank holds everything and computes: no moves, no norm.
fn resident(request: &ShardingRequest) -> Schedule {
    Schedule {
        placements: vec![Placement::default(); request.units.len()],
        micro_batch: MicroBatch::new(request).into_actions(),
        update: vec![Action::new(Act::Optimize, 1)],
        ..Schedule::default()
    }
}

#[test]
fn one_rank_needs_neither_reduction_nor_norm_and_two_do() {
    let mut request = request();
    let schedule = resident(&request);
    assert!(refused(&schedule, &request).contains("unit 1 is never reduced"));
    request.world = 1;
    schedule.validate(&request).expect("one rank");
    assert_eq!(schedule.most_gathered(&request), Ok(0));
}

#[test]
fn a_norm_of_some_units_is_refused() {
    let mut request = request();
    request.world = 1;
    request.units[2].trainable = 4;
    let mut schedule = resident(&request);
    schedule.update.push(Action::new(Act::Optimize, 2));
    schedule
        .micro_batch
        .push(Action::new(Act::Norm, 1).when(When::Last));
    assert!(refused(&schedule, &request).contains("counts 1 of 2 trained units"));
    schedule
        .micro_batch
        .push(Action::new(Act::Norm, 2).when(When::Last));
    schedule.validate(&request).expect("all of them");
}

#[test]
fn gradients_are_not_reduced_before_they_are_whole() {
    let mut request = request();
    // The embedding is trained, and the head's pass computes gradients for it, too.
    request.units[0].trainable = 4;
    request.units[0].backward_reads = vec![0];
    assert_eq!(request.gradients_whole_after(0), 4);
    assert_eq!(request.gradients_whole_after(1), 3);
    let mut schedule = resident(&request);
    schedule.update.insert(0, Action::new(Act::Optimize, 0));
    let reduce = |unit| Action::new(Act::Reduce, unit).when(When::Last);
    let norm = |unit| Action::new(Act::Norm, unit).when(When::Last);
    schedule.micro_batch.insert(3, reduce(0));
    schedule.micro_batch.extend([norm(0), reduce(1), norm(1)]);
    let message = refused(&schedule, &request);
    assert!(message.contains("adds to gradients of unit 0"), "{message}");
}

#[test]
fn a_sweep_has_no_more_micro_batches_than_a_step() {
    let counted = |held: u32, of_step: u32| {
        let request = ShardingRequest {
            micro_batches: of_step,
            ..request()
        };
        let schedule = Schedule {
            micro_batches_per_fetch: held,
            ..offloaded(&request)
        };
        schedule.validate(&request).expect("valid");
        (schedule.sweep(&request), schedule.sweeps(&request))
    };
    assert_eq!([counted(0, 4), counted(1, 4)], [(1, 4); 2]);
    assert_eq!([counted(3, 4), counted(9, 4)], [(3, 2), (4, 1)]);
    // Where the number of micro-batches is not known.
    assert_eq!([counted(0, 0), counted(9, 0)], [(1, 0), (9, 0)]);
}

#[test]
fn a_fetch_held_for_more_micro_batches_than_can_be_counted_is_refused() {
    let request = request();
    let mut schedule = offloaded(&request);
    schedule.micro_batches_per_fetch = u32::MAX;
    let message = refused(&schedule, &request);
    assert!(message.contains("expected at most 65536"), "{message}");
}
