//! The collective `threads`: ranks of one process, which read each other's memory.
//!
//! A call consists of phases that all members of a group start together. They publish their calls,
//! each computes its own part of the result from the others' memory, and none returns before all
//! are done. Only the result is copied.

mod group;
mod meeting;
#[cfg(feature = "plugin")]
mod plugin;
mod room;

use espalier_interface::{Collective, CollectiveInfo, Group, JoinRequest, Members, Result};
use espalier_kernels::ordered_sum::DTYPES;

use group::Member;
use meeting::Meetings;

/// The collective `threads`. Its members share one instance.
#[derive(Default)]
pub struct Threads {
    meetings: Meetings,
}

impl Collective for Threads {
    fn describe(&self) -> Result<CollectiveInfo> {
        Ok(CollectiveInfo {
            members: Members::Threads,
            dtypes: DTYPES.to_vec(),
            memory: vec!["host".to_owned()],
            max_bytes: u64::MAX,
            description: "threads of one process".to_owned(),
        })
    }

    fn join(&self, request: &JoinRequest) -> Result<Box<dyn Group>> {
        let room = self.meetings.join(request)?;
        Ok(Box::new(Member::new(request, room)))
    }
}

#[cfg(test)]
mod tests;
