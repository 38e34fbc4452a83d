//! Settings and a request -> the actions of the update.

use espalier_interface::schedule::{Act, Action, Part, Place, Schedule, ShardingRequest};

use crate::settings::Settings;

/// Every trained unit is updated in turn; its offloaded parts are fetched `prefetch` units ahead.
pub fn actions(settings: &Settings, request: &ShardingRequest, schedule: &Schedule) -> Vec<Action> {
    let trained: Vec<usize> = request.updated_after_backward().collect();
    let mut actions = Vec::new();
    let mut ahead = trained.iter();
    let mut fetched = 0;
    for (index, &unit) in trained.iter().enumerate() {
        let until = (index + 1 + settings.prefetch).min(trained.len());
        let moved = |act, unit| moving(settings, request, schedule, act, unit);
        for &next in ahead.by_ref().take(until - fetched) {
            actions.extend(moved(Act::Fetch, next));
        }
        fetched = until;
        actions.push(Action::new(Act::Optimize, unit));
        actions.extend(moved(Act::Release, unit));
        actions.extend(moved(Act::Offload, unit));
    }
    actions
}

/// The parts of a unit that an act moves for its update; none for parts stored on the device.
/// Where it is updated in the backward pass, its gradients are on the device by then.
pub fn moving(
    settings: &Settings,
    request: &ShardingRequest,
    schedule: &Schedule,
    act: Act,
    unit: usize,
) -> Option<Action> {
    let at = schedule.placements[unit];
    let (trainable, optimizer) = (&[Part::Trainable][..], &[Part::Optimizer][..]);
    let of_optimizer = match act {
        Act::Fetch if request.update_in_backward => optimizer,
        Act::Fetch => &[Part::Gradients, Part::Optimizer],
        Act::Release => &[Part::Gradients],
        _ => optimizer,
    };
    let mut parts = Vec::new();
    if at.trainable == Place::ShardedOnHost && act != Act::Release {
        parts.extend(trainable);
    }
    if at.optimizer == Place::ShardedOnHost {
        parts.extend(of_optimizer);
    }
    let stream = match act {
        Act::Release => 0,
        _ => settings.moves(),
    };
    (!parts.is_empty()).then(|| Action::moving(act, unit, &parts).on(stream))
}
