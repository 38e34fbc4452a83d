//! Settings and a request -> the actions of a micro-batch.

use espalier_interface::schedule::{
    Act, Action, MicroBatch, Part, Pass, Place, Schedule, ShardingRequest, When,
};

use crate::placement::NeededParts;
use crate::settings::{Settings, Strategy};
use crate::update;

/// A unit's weights stay in memory from before pass `first` until after pass `last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Stay {
    first: usize,
    /// The pass for which they are gathered.
    read: usize,
    unit: usize,
    last: usize,
}

/// The actions of a micro-batch.
pub fn actions(settings: &Settings, request: &ShardingRequest, schedule: &Schedule) -> Vec<Action> {
    let mut micro_batch = MicroBatch::new(request);
    gather_weights(settings, request, schedule, &mut micro_batch);
    if settings.offload_activations {
        offload_activations(settings, request, &mut micro_batch);
    }
    let whole = |unit: usize| schedule.placements[unit].optimizer == Place::Replicated;
    let reduces = request.world > 1 || !request.trained().all(whole);
    match (reduces, request.update_in_backward) {
        (true, _) => micro_batch.reduce(settings.moves()),
        (false, true) => micro_batch.update_in_backward(),
        (false, false) => {}
    }
    // What an update works on is fetched while the pass behind the reduction computes.
    let fetches = match (reduces, settings.moves()) {
        (true, 1..) => Act::Reduce,
        _ => Act::Norm,
    };
    let last = |action: Action| action.when(When::Last);
    let behind = |action: Action| {
        let (unit, act) = (action.unit, action.act);
        let releases = act == Act::Release && action.parts == [Part::Gradients];
        let moves = match request.update_in_backward {
            true if act == fetches => update::moving(settings, request, schedule, Act::Fetch, unit),
            true if releases => update::moving(settings, request, schedule, Act::Offload, unit),
            false if act == Act::Norm => offloaded_gradients(settings, schedule, unit),
            _ => None,
        };
        [Some(action), moves.map(last)]
    };
    let actions = micro_batch.into_actions().into_iter();
    actions.flat_map(behind).flatten().collect()
}

/// The move of a unit's reduced gradients to the host, where their update takes them from.
fn offloaded_gradients(settings: &Settings, schedule: &Schedule, unit: usize) -> Option<Action> {
    let offloads = schedule.placements[unit].optimizer == Place::ShardedOnHost;
    let offload = Action::moving(Act::Offload, unit, &[Part::Gradients]).on(settings.moves());
    offloads.then_some(offload)
}

fn gather_weights(
    settings: &Settings,
    request: &ShardingRequest,
    schedule: &Schedule,
    micro_batch: &mut MicroBatch<'_>,
) {
    let (begin, end) = match settings.strategy {
        Strategy::ShardGradOp => (When::First, When::Last),
        Strategy::FullShard | Strategy::Hybrid => (When::Every, When::Every),
    };
    let mut stays: Vec<Stay> = (0..request.units.len())
        .flat_map(|unit| stays(settings, micro_batch.passes(), unit))
        .collect();
    stays.sort();
    let moving = |act, unit, parts: &[Part]| {
        if parts.is_empty() {
            None
        } else {
            Some(Action::moving(act, unit, parts).on(settings.moves()))
        }
    };
    for Stay {
        first, last, unit, ..
    } in stays
    {
        let needed = NeededParts::of(request, schedule, unit);
        let fetch = moving(Act::Fetch, unit, &needed.fetched);
        let gather = moving(Act::Gather, unit, &needed.gathered);
        for action in fetch.into_iter().chain(gather) {
            micro_batch.before(first, action.when(begin));
        }
        if let Some(release) = moving(Act::Release, unit, &needed.all) {
            micro_batch.after(last, release.on(0).when(end));
        }
    }
}

/// When the weights of a unit are in memory: during the passes that read them and `prefetch` passes
/// before.
fn stays(settings: &Settings, passes: &[Pass<'_>], unit: usize) -> Vec<Stay> {
    let mut stays: Vec<Stay> = Vec::new();
    let reads = |pass: &&(usize, &Pass<'_>)| pass.1.reads.contains(&unit);
    let passes: Vec<_> = passes.iter().enumerate().collect();
    for &(read, _) in passes.iter().filter(reads) {
        let first = read.saturating_sub(settings.prefetch);
        match stays.last_mut() {
            Some(stay) if settings.strategy == Strategy::ShardGradOp || first <= stay.last + 1 => {
                stay.last = read;
            }
            _ => stays.push(Stay {
                first,
                read,
                unit,
                last: read,
            }),
        }
    }
    stays
}

/// Saved activations move to the host after their forward pass and return before their backward
/// pass, unless they would return at once.
fn offload_activations(
    settings: &Settings,
    request: &ShardingRequest,
    micro_batch: &mut MicroBatch<'_>,
) {
    let passes = request.passes();
    for (forward, unit) in request.units.iter().enumerate() {
        let backward = |pass: &Pass<'_>| pass.act == Act::Backward && pass.unit == forward;
        let Some(backward) = passes.iter().position(backward) else {
            continue;
        };
        let back = backward - settings.prefetch.min(backward);
        if unit.saved == 0 || back <= forward + 1 {
            continue;
        }
        let moving = |act| Action::moving(act, forward, &[Part::Saved]).on(settings.moves());
        micro_batch.after(forward, moving(Act::Offload));
        micro_batch.before(back, moving(Act::Fetch));
        micro_batch.after(backward, moving(Act::Release).on(0));
    }
}
