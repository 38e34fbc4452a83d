//! An action of the update -> a task, with the regions that it opens, works on and closes.

use espalier_interface::Result;
use espalier_interface::schedule::{Act, Action, Part, Place};

use super::Layout;
use crate::step_plan::RegionKind;

impl Layout<'_> {
    pub(super) fn add_update_task(&mut self, action: &Action) -> Result<()> {
        let unit = action.unit;
        let place = self.place(unit);
        let task = self.begin(action);
        let kind = |part: &Part| match part {
            Part::Trainable => Some(RegionKind::Values),
            Part::Gradients => Some(RegionKind::Reduced),
            Part::Optimizer => Some(RegionKind::State),
            Part::Frozen | Part::Saved => None,
        };
        match action.act {
            Act::Fetch => {
                for kind in action.parts.iter().filter_map(kind) {
                    self.open(task, unit, kind);
                }
            }
            Act::Optimize => {
                if place.trainable == Place::ShardedOnHost {
                    self.fill(task, unit, RegionKind::Values)?;
                }
                if place.optimizer == Place::ShardedOnHost {
                    self.read(task, unit, RegionKind::Reduced)?;
                    self.fill(task, unit, RegionKind::State)?;
                }
            }
            Act::Offload => {
                for kind in action.parts.iter().filter_map(kind) {
                    self.read(task, unit, kind)?;
                    self.close(task, unit, kind);
                }
            }
            Act::Release => {
                for kind in action.parts.iter().filter_map(kind) {
                    self.close(task, unit, kind);
                }
            }
            _ => {}
        }
        Ok(())
    }
}
