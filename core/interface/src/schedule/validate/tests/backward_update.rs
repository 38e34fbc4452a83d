//! Schedules that update within the backward pass.

use super::*;

/// An embedding and a layer that are trained in the backward pass; the head also makes gradients of
/// the embedding.
fn in_backward(world: u32) -> ShardingRequest {
    let mut request = request();
    (request.units[0].trainable, request.units[0].gradients) = (4, 4);
    request.units[0].backward_reads = vec![0];
    ShardingRequest {
        world,
        update_in_backward: true,
        ..request
    }
}

/// Every rank holds everything, and units are updated in the backward pass.
fn updated_in_backward(request: &ShardingRequest) -> Schedule {
    let mut micro_batch = MicroBatch::new(request);
    match request.world {
        1 => micro_batch.update_in_backward(),
        _ => micro_batch.reduce(1),
    }
    Schedule {
        placements: vec![Placement::default(); request.units.len()],
        micro_batch: micro_batch.into_actions(),
        ..Schedule::default()
    }
}

#[test]
fn updates_in_the_backward_pass_need_each_action_in_its_order() {
    for world in [1, 2] {
        let request = in_backward(world);
        let whole = updated_in_backward(&request);
        whole.validate(&request).expect("valid");
        for at in 0..whole.micro_batch.len() {
            let mut less = whole.clone();
            let action = less.micro_batch.remove(at);
            let found = less.validate(&request);
            assert!(found.is_err(), "valid without action {at}: {action:?}");
            let mut twice = whole.clone();
            twice.micro_batch.insert(at, action.clone());
            let found = twice.validate(&request);
            assert!(found.is_err(), "valid with action {at} twice: {action:?}");
        }
        for (at, pair) in whole.micro_batch.windows(2).enumerate() {
            if pair[0].unit == pair[1].unit {
                let mut swapped = whole.clone();
                swapped.micro_batch.swap(at, at + 1);
                let found = swapped.validate(&request);
                assert!(found.is_err(), "valid with actions swapped: {pair:?}");
            }
        }
    }
}

#[test]
fn an_update_belongs_where_the_request_wants_it() {
    let request = in_backward(1);
    let afterwards = ShardingRequest {
        update_in_backward: false,
        ..request.clone()
    };
    let mut schedule = resident(&afterwards);
    schedule.update.push(Action::new(Act::Optimize, 0));
    schedule.validate(&afterwards).expect("after the norm");
    let message = refused(&schedule, &request);
    assert!(message.contains("belongs into `micro_batch`"), "{message}");
    assert!(message.contains("update_in_backward"), "{message}");
    let message = refused(&updated_in_backward(&request), &afterwards);
    assert!(message.contains("belongs into `update`"), "{message}");
}

#[test]
fn an_update_in_the_backward_pass_comes_after_all_readers() {
    let request = in_backward(1);
    let mut schedule = updated_in_backward(&request);
    let (of_layer, others): (Vec<Action>, Vec<Action>) = schedule
        .micro_batch
        .into_iter()
        .partition(|one| one.unit == 1 && !matches!(one.act, Act::Forward | Act::Backward));
    schedule.micro_batch = [of_layer, others].concat();
    let message = refused(&schedule, &request);
    assert!(
        message.contains("reads unit 1, which was updated"),
        "{message}"
    );
}

/// As [`updated_in_backward`], with what is trained and its state kept on the host. What an update
/// works on is fetched once gradients are whole.
fn updated_from_the_host(request: &ShardingRequest) -> Schedule {
    let kept = Placement {
        trainable: Place::ShardedOnHost,
        optimizer: Place::ShardedOnHost,
        ..Placement::default()
    };
    let values = |act, unit| Action::moving(act, unit, &[Part::Trainable]);
    let updated = [Part::Trainable, Part::Optimizer];
    let last = |act, unit| Action::moving(act, unit, &updated).when(When::Last);
    let mut micro_batch = MicroBatch::new(request);
    for unit in request.trained() {
        micro_batch.before(0, values(Act::Fetch, unit));
        micro_batch.after(
            request.gradients_whole_after(unit),
            values(Act::Release, unit),
        );
    }
    micro_batch.reduce(1);
    let behind = |action: Action| {
        let unit = action.unit;
        let more = match (action.act, &action.parts[..]) {
            (Act::Reduce, _) => Some(last(Act::Fetch, unit)),
            (Act::Release, [Part::Gradients]) => Some(last(Act::Offload, unit)),
            _ => None,
        };
        [Some(action), more]
    };
    let actions = micro_batch.into_actions().into_iter();
    Schedule {
        placements: vec![kept; request.units.len()],
        micro_batch: actions.flat_map(behind).flatten().collect(),
        ..Schedule::default()
    }
}

#[test]
fn an_update_in_the_backward_pass_fetches_what_the_host_keeps() {
    let mut request = in_backward(1);
    for unit in &mut request.units {
        unit.optimizer = 2 * unit.trainable;
    }
    let whole = updated_from_the_host(&request);
    whole.validate(&request).expect("valid");
    for (at, action) in whole.micro_batch.iter().enumerate() {
        let mut less = whole.clone();
        less.micro_batch.remove(at);
        let found = less.validate(&request);
        assert!(found.is_err(), "valid without action {at}: {action:?}");
        for part in &action.parts {
            let mut less = whole.clone();
            less.micro_batch[at].parts.retain(|one| one != part);
            let found = less.validate(&request);
            assert!(found.is_err(), "valid without {part:?} of {action:?}");
        }
    }
}

#[test]
fn moves_for_an_update_in_the_backward_pass_are_refused_where_they_lose_or_miss_something() {
    type Change = fn(&mut Vec<Action>, &dyn Fn(Act, &[Part]) -> usize);
    const UPDATED: [Part; 2] = [Part::Trainable, Part::Optimizer];
    let mistakes: &[(Change, &str)] = &[
        (
            |actions, at| actions[at(Act::Offload, &UPDATED)].act = Act::Release,
            "would be lost: expected `offload`",
        ),
        (
            |actions, at| actions[at(Act::Release, &[Part::Gradients])].act = Act::Offload,
            "applies gradients where they are reduced",
        ),
        (
            |actions, at| {
                let fetch = actions.remove(at(Act::Fetch, &UPDATED));
                actions.insert(at(Act::Reduce, &[]), fetch);
            },
            "its gradients are not whole yet",
        ),
        (
            |actions, at| {
                let release = actions.remove(at(Act::Release, &[Part::Trainable]));
                actions.insert(at(Act::Fetch, &UPDATED) + 1, release);
            },
            "expected their `release` before",
        ),
        (
            |actions, at| {
                let gather = Action::moving(Act::Gather, 1, &[Part::Trainable]).on(1);
                actions.insert(at(Act::Fetch, &UPDATED) + 1, gather);
            },
            "fetched for their update",
        ),
    ];
    let mut request = in_backward(1);
    for unit in &mut request.units {
        unit.optimizer = 2 * unit.trainable;
    }
    for (change, words) in mistakes {
        let mut schedule = updated_from_the_host(&request);
        let actions = schedule.micro_batch.clone();
        let at = |act: Act, parts: &[Part]| {
            let found = |one: &Action| one.act == act && one.unit == 1 && one.parts == parts;
            actions.iter().position(found).expect("an action")
        };
        change(&mut schedule.micro_batch, &at);
        let message = refused(&schedule, &request);
        assert!(message.contains(words), "expected {words}: {message}");
    }
}
