//! A task and the pass that it is part of -> whether it gives the device anything to do. A lane has
//! to wait neither for nor before a task that does not.

use espalier_interface::schedule::{Act, Part, When};
use espalier_plan::step_plan::{Region, RegionKind, Task};

use super::Executor;
use super::window::Numbers;
use super::{Pass, StepPosition};

/// For each task of a micro-batch whether it takes part in a pass that does not train. These are
/// the forward passes up to that of unit `head`, and the moves of what they read.
pub(super) fn evaluates(tasks: &[Task], head: usize) -> Vec<bool> {
    let is_last = |task: &Task| task.action.act == Act::Forward && task.action.unit == head;
    let end = tasks.iter().position(is_last).map_or(0, |last| last + 1);
    let mut takes_part = vec![false; tasks.len()];
    let mut read: Vec<Region> = Vec::new();
    for (index, task) in tasks[..end].iter().enumerate().rev() {
        takes_part[index] = match task.action.act {
            Act::Forward => true,
            // What is fetched early for a backward pass is of no use.
            Act::Fetch | Act::Gather => task.regions.iter().any(|one| read.contains(one)),
            _ => false,
        };
        if takes_part[index] {
            read.extend(&task.regions);
        }
    }
    takes_part
}

/// Whether a task of a micro-batch moves nothing but what an update works on.
fn is_for_update(task: &Task) -> bool {
    let of_update = |part: &Part| matches!(part, Part::Trainable | Part::Optimizer);
    task.is_of_update() && task.action.parts.iter().all(of_update)
}

/// Whether a rank has any tokens in a sweep.
fn has_tokens(sweep: &[Numbers]) -> bool {
    sweep.iter().any(|numbers| numbers.tokens > 0)
}

impl Executor {
    /// Whether a task of a micro-batch gives the device work.
    pub(super) fn works_in_pass(
        &self,
        task: &Task,
        pass: Pass<'_>,
        position: StepPosition,
        sweep: &[Numbers],
    ) -> bool {
        let updates = matches!(
            pass,
            Pass::Train {
                update: Some(_),
                ..
            }
        );
        match task.action.act {
            Act::Forward | Act::Backward => {
                let trains = matches!(pass, Pass::Train { .. });
                let mut begins = task.begins.iter();
                let zeroes = |&(_, when): &(usize, When)| position.first || when == When::Every;
                has_tokens(sweep) || (trains && begins.any(zeroes))
            }
            Act::Norm => self.prepared.trained[task.action.unit].is_some(),
            Act::Optimize => updates && self.updates(task),
            _ => (updates || !is_for_update(task)) && self.moves_bytes(task, sweep),
        }
    }

    /// Whether a task of the update gives the device work.
    pub(super) fn works_in_update(&self, task: &Task) -> bool {
        match task.action.act {
            Act::Optimize => self.updates(task),
            _ => self.moves_bytes(task, &[]),
        }
    }

    /// Whether the update of a unit launches anything.
    fn updates(&self, task: &Task) -> bool {
        !self.group_parts[task.action.unit].is_empty()
    }

    /// Whether [`Executor::transfer`] does more than nothing.
    fn moves_bytes(&self, task: &Task, sweep: &[Numbers]) -> bool {
        let unit = task.action.unit;
        let has = |kind| task.region(unit, kind).is_some();
        let of_part = |part: &Part| match (task.action.act, part) {
            (Act::Fetch | Act::Offload, Part::Saved) => {
                let moves = has(RegionKind::Saved) && self.storage.saved_home(unit).is_some();
                moves && has_tokens(sweep)
            }
            (Act::Fetch, Part::Frozen) => {
                has(RegionKind::Frozen) && self.storage.frozen_home(unit).is_some()
            }
            (Act::Fetch, Part::Trainable) => has(RegionKind::Values) || has(RegionKind::Trainable),
            (Act::Offload, Part::Trainable) => has(RegionKind::Values),
            (Act::Fetch | Act::Offload, Part::Gradients) => has(RegionKind::Reduced),
            (Act::Fetch | Act::Offload, Part::Optimizer) => has(RegionKind::State),
            _ => false,
        };
        match task.action.act {
            Act::Fetch | Act::Offload => task.action.parts.iter().any(of_part),
            Act::Gather => self.gathered(task).iter().any(|(send, region, _)| {
                // One rank has all of what it fetched.
                self.peers.world().ranks > 1 || send != region
            }),
            Act::Reduce => {
                let travels = has(RegionKind::Wire) || self.peers.world().ranks > 1;
                let has_gradients = self.shard_layout.flat_params[unit].elements > 0;
                has_gradients && (travels || self.shard_layout.is_cut(unit))
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use espalier_interface::schedule::Action;
    use espalier_plan::step_plan::Lane;

    use super::*;

    /// A task with regions of its unit at these offsets.
    fn task(act: Act, unit: usize, offsets: &[u64]) -> Task {
        let region = |&offset: &u64| Region {
            unit,
            kind: RegionKind::Frozen,
            offset,
            bytes: 64,
        };
        Task {
            action: Action::new(act, unit),
            lane: Lane::COMPUTE,
            waits: Vec::new(),
            regions: offsets.iter().map(region).collect(),
            begins: Vec::new(),
        }
    }

    #[test]
    fn an_evaluation_ends_with_the_head_and_moves_only_what_its_passes_read() {
        let tasks = [
            (task(Act::Fetch, 0, &[0]), true),
            (task(Act::Gather, 0, &[0]), true),
            (task(Act::Forward, 0, &[0]), true),
            (task(Act::Fetch, 1, &[64]), true),
            (task(Act::Release, 0, &[0]), false),
            // For the backward pass.
            (task(Act::Fetch, 0, &[128]), false),
            (task(Act::Gather, 0, &[128]), false),
            (task(Act::Forward, 1, &[64]), true),
            (task(Act::Backward, 0, &[128]), false),
        ];
        let (tasks, expected): (Vec<Task>, Vec<bool>) = tasks.into_iter().unzip();
        assert_eq!(evaluates(&tasks, 1), expected);
    }
}
