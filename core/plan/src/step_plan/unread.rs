//! A step plan and what its passes read -> the same without the fetches and gathers of params that
//! no pass reads.
//!
//! A strategy fetches a unit's params for each pass that reads them or computes gradients for them
//! ([`UnitBytes::backward_reads`](espalier_interface::schedule::UnitBytes::backward_reads)). Some
//! passes do only the latter: the gradient of an embedding's table does not depend on the table.

use espalier_interface::schedule::{Act, Action, Part};

use super::{Region, RegionKind, StepPlan};

impl StepPlan {
    /// Leaves out what fills a region of params that no later pass reads. `reads` says whether a
    /// forward or backward pass reads the params that a region holds.
    pub(crate) fn leave_out_unread(&mut self, reads: &dyn Fn(&Action, &Region) -> bool) {
        let mut read: Vec<Region> = Vec::new();
        for task in self.micro_batch.iter_mut().rev() {
            match task.action.act {
                Act::Forward | Act::Backward => {
                    let regions = task.regions.iter();
                    read.extend(regions.filter(|region| reads(&task.action, region)));
                }
                Act::Fetch | Act::Gather => {
                    for (part, kind) in [
                        (Part::Frozen, RegionKind::Frozen),
                        (Part::Trainable, RegionKind::Trainable),
                    ] {
                        let brought = task.region(task.action.unit, kind);
                        if brought.is_some_and(|region| !read.contains(&region)) {
                            task.action.parts.retain(|&one| one != part);
                            task.regions.retain(|region| region.kind != kind);
                        }
                    }
                }
                _ => {}
            }
        }
    }
}
