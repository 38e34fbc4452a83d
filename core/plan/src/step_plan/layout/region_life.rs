//! Regions from the task that opens them to the one that closes them, with the dependencies between
//! tasks.

use std::collections::BTreeSet;

use espalier_compile::arena::Lifetime;
use espalier_interface::{PluginError, Result};

use super::Layout;
use crate::step_plan::RegionKind;

/// A region that is open.
pub(super) struct OpenRegion {
    /// Index of its [`RegionLife`].
    pub region: usize,
    /// Tasks that have written or read it.
    pub users: BTreeSet<usize>,
    /// Those of them that have filled it.
    pub filled: BTreeSet<usize>,
}

/// A region that was opened, with its size and its first and last task.
pub(super) struct RegionLife {
    pub unit: usize,
    pub kind: RegionKind,
    pub life: Lifetime,
    /// Whether it lasts from micro-batch to micro-batch.
    pub lasts: bool,
    /// Tasks that write or read it.
    pub users: BTreeSet<usize>,
}

impl Layout<'_> {
    /// Opens a region that the task fills. A region of no bytes is left out.
    pub(super) fn open(&mut self, task: usize, unit: usize, kind: RegionKind) {
        let bytes = self.sizes[unit].of(kind);
        if bytes == 0 {
            return;
        }
        self.lives.push(RegionLife {
            unit,
            kind,
            life: Lifetime {
                bytes,
                first: task,
                last: task,
            },
            lasts: false,
            users: BTreeSet::from([task]),
        });
        let region = self.lives.len() - 1;
        self.tasks[task].regions.push(region);
        let open = OpenRegion {
            region,
            users: BTreeSet::from([task]),
            filled: BTreeSet::from([task]),
        };
        self.open.insert((unit, kind), open);
    }

    /// Lets the task write a region that is open. Tasks that use the region later wait for it.
    ///
    /// # Errors
    /// `INVALID` for a region that is not open.
    pub(super) fn fill(&mut self, task: usize, unit: usize, kind: RegionKind) -> Result<()> {
        if let Some(open) = self.use_region(task, unit, kind)? {
            let users = open.users.clone();
            open.filled.insert(task);
            open.users.insert(task);
            self.tasks[task].after.extend(users);
        }
        Ok(())
    }

    /// Lets the task read a region that is open.
    ///
    /// # Errors
    /// `INVALID` for a region that is not open.
    pub(super) fn read(&mut self, task: usize, unit: usize, kind: RegionKind) -> Result<()> {
        if let Some(open) = self.use_region(task, unit, kind)? {
            let filled = open.filled.clone();
            open.users.insert(task);
            self.tasks[task].after.extend(filled);
        }
        Ok(())
    }

    /// Adds a region that is open to those of the task; `None` for one of no bytes.
    fn use_region(
        &mut self,
        task: usize,
        unit: usize,
        kind: RegionKind,
    ) -> Result<Option<&mut OpenRegion>> {
        if self.sizes[unit].of(kind) == 0 {
            return Ok(None);
        }
        let Some(open) = self.open.get_mut(&(unit, kind)) else {
            let action = &self.tasks[task].action;
            return Err(PluginError::invalid(format!(
                "schedule: action {task} ({:?} of unit {}) works on the {kind:?} bytes of unit {unit}, which nothing has \
                 brought",
                action.act, action.unit
            )));
        };
        if !self.tasks[task].regions.contains(&open.region) {
            self.tasks[task].regions.push(open.region);
        }
        Ok(Some(open))
    }

    /// Closes a region, if it is open; the task is the last to use it. It does not wait for the
    /// other users: whoever fills the same bytes later waits for all of them.
    pub(super) fn close(&mut self, task: usize, unit: usize, kind: RegionKind) {
        let Some(open) = self.open.remove(&(unit, kind)) else {
            return;
        };
        let opener = self.lives[open.region].life.first;
        let region = &mut self.lives[open.region];
        region.users.extend(&open.users);
        region.users.insert(task);
        region.life.last = task;
        region.lasts |= self.tasks[opener].action.when != self.tasks[task].action.when;
    }

    /// Closes the regions that are still open: they last from micro-batch to micro-batch.
    pub(super) fn close_all(&mut self) {
        let Some(last) = self.tasks.len().checked_sub(1) else {
            return;
        };
        let open = std::mem::take(&mut self.open);
        for open in open.into_values() {
            let region = &mut self.lives[open.region];
            region.users.extend(&open.users);
            region.life.last = last;
            region.lasts = true;
        }
    }
}
