//! Checks of a schedule that need no simulation: sizes, placements, streams, and which act moves
//! which parts in which list.

use super::{Act, Action, Part, Place, Schedule, ShardingRequest, When};
use crate::{PluginError, Result};

/// Most micro-batches that a fetch may be held for: more than any step needs, and few enough that
/// their bytes can be counted.
const MOST_PER_FETCH: u32 = 1 << 16;

/// One of the two lists of actions of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum List {
    MicroBatch,
    Update,
}

/// An error of the schedule as a whole.
pub(super) fn wrong(what: impl std::fmt::Display) -> PluginError {
    PluginError::invalid(format!("schedule: {what}"))
}

impl List {
    /// The name of an action of this list in error messages.
    pub(super) fn at(self, index: usize, action: &Action) -> String {
        let list = match self {
            List::MicroBatch => "action",
            List::Update => "update action",
        };
        format!("{list} {index} ({:?} of unit {})", action.act, action.unit)
    }

    fn actions(self, schedule: &Schedule) -> &[Action] {
        match self {
            List::MicroBatch => &schedule.micro_batch,
            List::Update => &schedule.update,
        }
    }

    fn takes(self, act: Act, request: &ShardingRequest) -> bool {
        match (self, act) {
            (_, Act::Fetch | Act::Release | Act::Offload) => true,
            (list, Act::Optimize) => (list == List::MicroBatch) == request.update_in_backward,
            (list, _) => list == List::MicroBatch,
        }
    }
}

/// Checks placements and the form of every action.
pub(super) fn check(schedule: &Schedule, request: &ShardingRequest) -> Result<()> {
    placements(schedule, request)?;
    if schedule.micro_batches_per_fetch > MOST_PER_FETCH {
        return Err(wrong(format_args!(
            "micro_batches_per_fetch is {}: expected at most {MOST_PER_FETCH}",
            schedule.micro_batches_per_fetch
        )));
    }
    let is_one_sweep = schedule.sweeps(request) == 1;
    for list in [List::MicroBatch, List::Update] {
        for (index, action) in list.actions(schedule).iter().enumerate() {
            form((list, index), action, request, is_one_sweep)
                .map_err(|what| wrong(format_args!("{}: {what}", list.at(index, action))))?;
        }
    }
    let calls = |action: &&Action| matches!(action.act, Act::Gather | Act::Reduce);
    let mut calls = schedule.micro_batch.iter().filter(calls);
    let first = calls.next();
    match first.and_then(|first| calls.find(|other| other.stream != first.stream)) {
        Some(_) => Err(wrong(
            "some gathers and reductions are on stream 0, others on stream 1: expected all on one, so that all ranks \
             make them in one order",
        )),
        None => Ok(()),
    }
}

fn placements(schedule: &Schedule, request: &ShardingRequest) -> Result<()> {
    let (found, units) = (schedule.placements.len(), request.units.len());
    if found != units {
        return Err(wrong(format_args!("{found} placements for {units} units")));
    }
    let (ranks, world) = (schedule.ranks_sharing(request), request.world.max(1));
    if world % ranks != 0 {
        return Err(wrong(format_args!(
            "groups of {ranks} ranks share what is cut: expected a divisor of the {world} ranks"
        )));
    }
    for (unit, at) in schedule.placements.iter().enumerate() {
        if at.trainable == Place::Host || at.optimizer == Place::Host {
            return Err(wrong(format_args!(
                "unit {unit}: trainable params and optimizer state cannot be in the machine's one copy (`host`), which \
                 nobody writes: expected `sharded_on_host`"
            )));
        }
        let whole = |place| place == Place::Replicated;
        if ranks > 1 && request.trains(unit) && whole(at.trainable) != whole(at.optimizer) {
            return Err(wrong(format_args!(
                "unit {unit}: trainable params are {:?} and their optimizer state is {:?}: expected both cut or neither",
                at.trainable, at.optimizer
            )));
        }
    }
    Ok(())
}

/// Checks an action by itself.
fn form(
    (list, index): (List, usize),
    action: &Action,
    request: &ShardingRequest,
    is_one_sweep: bool,
) -> std::result::Result<(), String> {
    let Some(unit) = request.units.get(action.unit) else {
        return Err(format!("there are {} units", request.units.len()));
    };
    if let Some(later) = action.after.iter().find(|&&other| other >= index) {
        return Err(format!("waits for action {later}, which is not before it"));
    }
    if !list.takes(action.act, request) {
        let (there, here) = match list {
            List::MicroBatch => ("update", "micro_batch"),
            List::Update => ("micro_batch", "update"),
        };
        let why = match action.act {
            Act::Optimize if request.update_in_backward => {
                ": this run updates in the backward pass (`update_in_backward`)"
            }
            Act::Optimize => ": this run updates once the global norm is known",
            _ => "",
        };
        return Err(format!("belongs into `{there}`, found in `{here}`{why}"));
    }
    stream(action)?;
    when(list, action, is_one_sweep)?;
    parts(action)?;
    // An optimizer may keep nothing of what is trained; its state may be moved all the same.
    let missing = |part: &&Part| match part {
        Part::Optimizer => unit.trainable == 0,
        part => unit.bytes(**part) == 0,
    };
    match action.parts.iter().find(missing) {
        Some(part) => Err(format!("the unit has no {part:?} bytes: leave them out")),
        None => Ok(()),
    }
}

fn stream(action: &Action) -> std::result::Result<(), String> {
    let computes = matches!(
        action.act,
        Act::Forward | Act::Backward | Act::Norm | Act::Optimize
    );
    match (computes, action.stream) {
        (true, 1..) => Err(format!(
            "computes, and is on stream {}: expected 0",
            action.stream
        )),
        (false, 2..) => Err(format!(
            "is on stream {}: expected 0, which computes, or 1, which moves bytes",
            action.stream
        )),
        _ => Ok(()),
    }
}

fn when(list: List, action: &Action, is_one_sweep: bool) -> std::result::Result<(), String> {
    let only_one = is_one_sweep && action.when == When::Every;
    let (fits, expected) = match action.act {
        Act::Reduce | Act::Norm => (action.when == When::Last || only_one, "last"),
        Act::Optimize if list == List::MicroBatch => {
            (action.when == When::Last || only_one, "last")
        }
        Act::Forward | Act::Backward => (action.when == When::Every, "every"),
        _ => (
            list == List::MicroBatch || action.when == When::Every,
            "every",
        ),
    };
    if fits {
        Ok(())
    } else {
        Err(format!(
            "takes place in {:?} micro-batch: expected `{expected}`",
            action.when
        ))
    }
}

fn parts(action: &Action) -> std::result::Result<(), String> {
    let moved: &[Part] = match action.act {
        Act::Gather => &[Part::Frozen, Part::Trainable],
        Act::Fetch | Act::Release | Act::Offload => &[
            Part::Frozen,
            Part::Trainable,
            Part::Gradients,
            Part::Optimizer,
            Part::Saved,
        ],
        _ => &[],
    };
    if let Some(part) = action.parts.iter().find(|part| !moved.contains(part)) {
        return Err(format!("does not move {part:?}"));
    }
    if action.parts.is_empty() && !moved.is_empty() {
        return Err("names no parts: expected what it moves".to_owned());
    }
    let twice = |&(at, part): &(usize, &Part)| action.parts[..at].contains(part);
    match action.parts.iter().enumerate().find(twice) {
        Some((_, part)) => Err(format!("names {part:?} twice")),
        None => Ok(()),
    }
}
