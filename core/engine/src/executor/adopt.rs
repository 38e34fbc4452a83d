//! Copies of params from one executor to another: on the same device, or through the host.

use std::sync::Arc;

use espalier_interface::schedule::Place;
use espalier_interface::{BufferRange, Stream};
use espalier_plan::storage_layout::StateKind;

use super::storage;
use super::{Executor, Storage};
use crate::error::Result;

impl Executor {
    /// Uploads this rank's part of a unit's frozen run, or all of it where it is not cut.
    ///
    /// # Errors
    /// `Error::Plugin`: a call to the backend failed.
    pub fn place_frozen(&self, unit: usize, run: &[u8]) -> Result<()> {
        self.changes_state()?;
        match self.storage.frozen_home(unit) {
            Some(home) if self.shard_layout.placements[unit].frozen != Place::Host => {
                let part = self.shard_layout.part_bytes(unit);
                let own = u64::from(self.peers.shard().0);
                self.place(home, [own * part, part], run)
            }
            Some(_) => Ok(()),
            None => {
                let places = self.shard_layout.flat_params[unit].frozen.iter();
                for (param, segments) in places {
                    for (bytes, &to) in segments.iter().zip(self.storage.param(*param)) {
                        let from = &run[bytes.start as usize..bytes.end as usize];
                        self.upload(from, to)?;
                    }
                }
                Ok(())
            }
        }
    }

    /// Uploads this rank's elements of the values of a unit's trainable run.
    ///
    /// # Errors
    /// `Error::Plugin`: a call to the backend failed.
    pub fn place_values(&self, unit: usize, run: &[u8]) -> Result<()> {
        self.changes_state()?;
        let part = self.shard_layout.own_elements(unit) * self.dtypes.params.bytes();
        let first = if self.shard_layout.is_cut(unit) {
            part * u64::from(self.peers.shard().0)
        } else {
            0
        };
        self.place(
            self.storage.kept(unit, StateKind::Values),
            [first, part],
            run,
        )
    }

    /// Writes the `part` bytes of a run that begin at byte `first` to `home`; fewer where the run
    /// ends earlier.
    fn place(&self, home: BufferRange, [first, part]: [u64; 2], run: &[u8]) -> Result<()> {
        let run_bytes = run.len() as u64;
        let bytes = first.min(run_bytes)..(first + part).min(run_bytes);
        let to = storage::part(home, &(0..bytes.end - bytes.start), 1);
        let from = &run[bytes.start as usize..bytes.end as usize];
        self.upload(from, to)
    }

    fn upload(&self, from: &[u8], to: BufferRange) -> Result<()> {
        let uploaded = self.device.upload(from, to, Stream(0));
        self.since_wait.during("upload", uploaded)
    }

    /// The storage.
    pub fn storage(&self) -> &Storage {
        &self.storage
    }

    /// Copies frozen param number `param` from `from`, which has it in the same layout.
    ///
    /// # Errors
    /// `Error::Plugin`: a call to either backend failed.
    pub fn adopt_frozen(&self, from: &Executor, param: usize) -> Result<()> {
        if self
            .storage
            .shares_unit(&from.storage, self.params[param].unit)
        {
            return Ok(());
        }
        let ranges = from.storage.param(param).iter();
        ranges
            .zip(self.storage.param(param))
            .try_for_each(|(&from_range, &to)| self.adopt(from, from_range, to))
    }

    /// Copies values and state of all trained params from `from`.
    ///
    /// # Errors
    /// `Error::Plugin`: a call to either backend failed.
    pub fn adopt_state(&self, from: &Executor) -> Result<()> {
        from.assert_no_lane_moves();
        if self.storage.shares_state(&from.storage) {
            return Ok(());
        }
        for param in self.trainable() {
            for part in self.state_parts(param) {
                let (old, new) = (from.state_range(param, part), self.state_range(param, part));
                self.adopt(from, old, new)?;
            }
        }
        Ok(())
    }

    /// Moves frozen params out of mapped files into the device's memory, unit by unit.
    ///
    /// # Errors
    /// `Error::Plugin`: a call to the backend failed. A unit that was not moved still works.
    pub fn leave_mapped_files(&mut self) -> Result<()> {
        self.assert_no_lane_moves();
        let moved = self.storage.leave_mapped_files(&self.device);
        self.since_wait.waiting("copy", moved)
    }

    /// State passes from one executor to another only where all weights are on the device: no lane
    /// but the compute lane was given work.
    fn assert_no_lane_moves(&self) {
        assert!(
            self.behind.compute_has_caught_up(),
            "state of runs that move weights is gathered"
        );
    }

    fn adopt(&self, from: &Executor, old: BufferRange, new: BufferRange) -> Result<()> {
        self.changes_state()?;
        if Arc::ptr_eq(&self.device, &from.device) {
            let copied = self.device.copy(old, new, Stream(0));
            return self.since_wait.during("copy", copied);
        }
        let mut done = 0;
        from.download_parts(old, &mut |bytes| {
            let end = done + bytes.len() as u64;
            self.upload(bytes, storage::part(new, &(done..end), 1))?;
            done = end;
            Ok(())
        })
    }
}
