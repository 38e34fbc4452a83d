//! The collective `mpi`: processes that `mpirun` or `srun` started, on one machine or many.
//!
//! All data moves in nonblocking messages, which are tested and never waited for inside MPI. So a
//! call ends when the group is aborted, even if a member hangs. Sums are computed here, in the
//! order of the members, so that they have the same bits as those of threads. They need no more
//! traffic than a ring.

mod group;
mod join;
mod process;
mod transfer;

use std::sync::Arc;

use espalier_interface::{
    Collective, CollectiveInfo, Component, ErrorCode, Group, Instance, JoinRequest, Members,
    PluginError, Result, Role, Services,
};
use espalier_kernels::ordered_sum::DTYPES;

/// The collective `mpi`. A process has one MPI instance, which starts with the first group.
pub struct Mpi {
    services: Arc<dyn Services>,
}

impl Collective for Mpi {
    fn describe(&self) -> Result<CollectiveInfo> {
        let version = mpi::environment::library_version();
        let version = version.unwrap_or_else(|_| "of an unreadable version".to_owned());
        let line = version
            .trim_end_matches('\0')
            .lines()
            .next()
            .unwrap_or_default();
        Ok(CollectiveInfo {
            members: Members::Processes,
            dtypes: DTYPES.to_vec(),
            memory: vec!["host".to_owned()],
            max_bytes: u64::MAX,
            description: format!("MPI: {line}"),
        })
    }

    fn join(&self, request: &JoinRequest) -> Result<Box<dyn Group>> {
        Ok(Box::new(join::join(request, &self.services)?))
    }
}

/// The error of a group that cannot continue.
fn peer(group: &str, what: impl std::fmt::Display) -> PluginError {
    PluginError::new(ErrorCode::PEER, format!("group `{group}`: {what}"))
}

const MPI: Component = Component {
    name: "mpi",
    role: Role::COLLECTIVE,
    doc: "joins the processes that mpirun or srun started, through the site's MPI",
    options: &[],
    capabilities: &[],
    create: |_, services| Ok(Instance::Collective(Box::new(Mpi { services }))),
};

espalier_interface::declare_plugin! { name: "collective-mpi", components: &[MPI] }
