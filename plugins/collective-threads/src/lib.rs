//! The collective `threads`: ranks of one process, which read each other's memory.
//!
//! A call consists of phases that all members of a group start together. They publish their calls,
//! each computes its own part of the result from the others' memory, and none returns before all
//! are done. Only the result is copied.

mod group;
mod meeting;
mod room;

use espalier_interface::{
    Collective, CollectiveInfo, Component, Group, Instance, JoinRequest, Members, Result, Role,
};
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

const THREADS: Component = Component {
    name: "threads",
    role: Role::COLLECTIVE,
    doc: "joins the ranks of one process through its memory",
    options: &[],
    capabilities: &[],
    create: |_, _| Ok(Instance::Collective(Box::new(Threads::default()))),
};

espalier_interface::declare_plugin! { name: "collective-threads", components: &[THREADS] }

#[cfg(test)]
mod tests;
