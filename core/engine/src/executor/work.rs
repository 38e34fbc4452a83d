//! A task and the pass that it is part of -> whether it gives the device anything to do. A lane has
//! to wait neither for nor before a task that does not.

use espalier_interface::schedule::{Act, Part, When};
use espalier_plan::step_plan::{RegionKind, Task};

use super::Executor;
use super::window::Numbers;
use super::{Pass, StepPosition};

impl Executor {
    /// Whether a task of a micro-batch gives the device work.
    pub(super) fn works_in_pass(
        &self,
        task: &Task,
        pass: Pass,
        position: StepPosition,
        numbers: &Numbers,
    ) -> bool {
        match task.action.act {
            Act::Forward | Act::Backward => {
                let trains = matches!(pass, Pass::Train { .. });
                let mut begins = task.begins.iter();
                let zeroes = |&(_, when): &(usize, When)| position.first || when == When::Every;
                numbers.tokens > 0 || (trains && begins.any(zeroes))
            }
            Act::Norm => self.prepared.trained[task.action.unit].is_some(),
            _ => self.moves_bytes(task, Some(numbers)),
        }
    }

    /// Whether a task of the update gives the device work.
    pub(super) fn works_in_update(&self, task: &Task) -> bool {
        match task.action.act {
            Act::Optimize => !self.group_parts[task.action.unit].is_empty(),
            _ => self.moves_bytes(task, None),
        }
    }

    /// Whether [`Executor::transfer`] does more than nothing.
    fn moves_bytes(&self, task: &Task, numbers: Option<&Numbers>) -> bool {
        let unit = task.action.unit;
        let has = |held| task.region(unit, held).is_some();
        let of_part = |part: &Part| match (task.action.act, part) {
            (Act::Fetch | Act::Offload, Part::Saved) => {
                let tokens = numbers.is_some_and(|numbers| numbers.tokens > 0);
                tokens && has(RegionKind::Saved) && self.storage.saved_home(unit).is_some()
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
                let has_gradients = self.shard_layout.runs[unit].elements > 0;
                has_gradients && (travels || self.shard_layout.is_cut(unit))
            }
            _ => false,
        }
    }
}
