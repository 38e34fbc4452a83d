//! Tasks and lives of regions -> the step plan: an offset for each region, and the dependencies of
//! each task.

use espalier_compile::arena::{Lifetime, aligned, pack};

use super::{DraftTask, Layout, lanes_of};
use crate::step_plan::{Lane, Region, StepPlan, Task};

impl Layout<'_> {
    /// Packs the regions and makes the tasks.
    pub(super) fn packed(mut self) -> StepPlan {
        let lifetimes = self.lifetimes();
        let (offsets, region_bytes) = pack(&lifetimes);
        self.wait_for_reused_bytes(&lifetimes, &offsets);
        let lanes = lanes_of(&self.tasks);
        let drafts = std::mem::take(&mut self.tasks);
        let mut tasks = drafts.into_iter().enumerate().map(|(index, draft)| Task {
            waits: self.waits(index, &draft, &lanes),
            lane: lanes[index],
            regions: draft
                .regions
                .iter()
                .map(|&at| Region {
                    unit: self.lives[at].unit,
                    kind: self.lives[at].kind,
                    offset: offsets[at],
                    bytes: self.lives[at].life.bytes,
                })
                .collect(),
            begins: draft.begins,
            action: draft.action,
        });
        let micro_batch: Vec<Task> = tasks.by_ref().take(self.split).collect();
        let update = tasks.collect();
        StepPlan {
            micro_batch,
            update,
            region_bytes,
        }
    }

    /// The tasks through which each region keeps its bytes. One that lasts from micro-batch to
    /// micro-batch keeps them for all of a micro-batch, or for all of the update.
    fn lifetimes(&self) -> Vec<Lifetime> {
        let split = self.split;
        self.lives
            .iter()
            .map(|region| {
                if !region.lasts {
                    region.life
                } else if region.life.first < split {
                    Lifetime {
                        first: 0,
                        last: split.saturating_sub(1),
                        ..region.life
                    }
                } else {
                    Lifetime {
                        first: split,
                        last: self.tasks.len() - 1,
                        ..region.life
                    }
                }
            })
            .collect()
    }

    /// Makes the first task of each region wait for all users of earlier regions with the same
    /// bytes.
    fn wait_for_reused_bytes(&mut self, lifetimes: &[Lifetime], offsets: &[u64]) {
        let end = |at: usize| offsets[at] + aligned(lifetimes[at].bytes);
        for (at, region) in self.lives.iter().enumerate() {
            for (other, earlier) in self.lives.iter().enumerate() {
                let apart = end(at) <= offsets[other] || end(other) <= offsets[at];
                if other != at && !apart && lifetimes[other].last < lifetimes[at].first {
                    self.tasks[region.life.first].after.extend(&earlier.users);
                }
            }
        }
    }

    /// The tasks of other lanes that task `index` must wait for, counted from the start of its
    /// micro-batch or update.
    fn waits(&self, index: usize, draft: &DraftTask, lanes: &[Lane]) -> Vec<usize> {
        let begin = if index < self.split { 0 } else { self.split };
        let before = draft.after.range(begin..index);
        let of_others = before.filter(|&&task| lanes[task] != lanes[index]);
        of_others.map(|task| task - begin).collect()
    }
}
