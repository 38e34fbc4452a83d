//! The collective calls of a step -> the pinned memory that their bytes pass through on a device
//! whose memory the host does not reach.

use espalier_compile::params::Dtypes;
use espalier_interface::schedule::Act;

use crate::shard_layout::ShardLayout;
use crate::step_plan::{RegionKind, StepPlan, Task};

/// Most bytes that pass at once, unless there are many ranks. A part of this size takes about a
/// millisecond to copy, which is long beside the beginning of a call.
pub const MOST_BYTES: u64 = 16 << 20;

/// Parts of a call begin at multiples of this, in elements of every dtype.
pub const ALIGNMENT: u64 = 64;

/// Bytes that the calls of `step_plan` pass through. They hold the largest call, within
/// [`MOST_BYTES`], and a part from each of the ranks that share a cut unit.
pub fn bytes(step_plan: &StepPlan, shard_layout: &ShardLayout, dtypes: Dtypes) -> u64 {
    let tasks = step_plan.micro_batch.iter().chain(&step_plan.update);
    let largest = tasks.map(|task| call_bytes(task, shard_layout, dtypes));
    let least = ALIGNMENT * shard_layout.parts;
    match largest.max() {
        None | Some(0) => 0,
        Some(largest) => largest.min(MOST_BYTES).next_multiple_of(least),
    }
}

/// Bytes of the largest call of a task; 0 for one without calls.
fn call_bytes(task: &Task, shard_layout: &ShardLayout, dtypes: Dtypes) -> u64 {
    let unit = task.action.unit;
    let region = |kind| task.region(unit, kind).map_or(0, |region| region.bytes);
    match task.action.act {
        Act::Gather => region(RegionKind::Frozen).max(region(RegionKind::Trainable)),
        Act::Reduce if shard_layout.is_cut(unit) => {
            region(RegionKind::Gradients).max(region(RegionKind::Wire))
        }
        Act::Reduce => {
            let own = shard_layout.flat_params[unit].elements * dtypes.gradients.bytes();
            own.max(region(RegionKind::Wire))
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use espalier_interface::DType;
    use espalier_interface::schedule::{Action, Place, Placement};

    use super::*;
    use crate::step_plan::{Lane, Region};

    fn staged(act: Act, kind: RegionKind, bytes: u64) -> u64 {
        let region = Region {
            unit: 0,
            kind,
            offset: 0,
            bytes,
        };
        let task = Task {
            action: Action::new(act, 0).on(1),
            lane: Lane(1),
            waits: Vec::new(),
            regions: vec![region],
            begins: Vec::new(),
        };
        let placement = Placement {
            optimizer: Place::Sharded,
            ..Placement::default()
        };
        let shard_layout = ShardLayout {
            placements: vec![placement],
            parts: 3,
            ..ShardLayout::default()
        };
        let dtypes = Dtypes::all(DType::F32);
        let step_plan = StepPlan {
            micro_batch: vec![task],
            ..StepPlan::default()
        };
        super::bytes(&step_plan, &shard_layout, dtypes)
    }

    #[test]
    fn the_largest_call_passes_at_once_within_a_bound() {
        assert_eq!(staged(Act::Gather, RegionKind::Frozen, 640), 768);
        assert_eq!(staged(Act::Reduce, RegionKind::Gradients, 192), 192);
        let most = staged(Act::Gather, RegionKind::Frozen, 1 << 40);
        assert!((MOST_BYTES..MOST_BYTES + 192).contains(&most), "{most}");
        assert_eq!(most % (3 * ALIGNMENT), 0);
        assert_eq!(staged(Act::Fetch, RegionKind::Frozen, 640), 0);
    }
}
