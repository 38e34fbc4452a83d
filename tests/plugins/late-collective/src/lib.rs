//! The collective `late-collective`: joins devices of the backend `late` in one process.
//!
//! A call is a task on a stream of each member's device, in the likeness of NCCL: it is put there
//! by `call`, and done when the stream comes to it on all members. It works on native addresses.
//! What members compute is what the collective `threads` computes, so the bits are the same.

mod member;

use std::sync::atomic::{AtomicU64, Ordering};

use espalier_collective_threads::Threads;
use espalier_interface::{
    Collective, CollectiveInfo, Component, Group, Instance, JoinRequest, PluginError, Result, Role,
};

use member::Member;

/// The backend whose devices it joins.
const BACKEND: &str = "late";

/// The collective. Its members share one instance.
#[derive(Default)]
struct LateCollective {
    threads: Threads,
    invitations: AtomicU64,
}

impl Collective for LateCollective {
    fn describe(&self) -> Result<CollectiveInfo> {
        Ok(CollectiveInfo {
            memory: vec![BACKEND.to_owned()],
            description: "devices of the backend `late` in one process".to_owned(),
            ..self.threads.describe()?
        })
    }

    fn invite(&self) -> Result<Vec<u8>> {
        let number = self.invitations.fetch_add(1, Ordering::Relaxed);
        Ok([&number.to_le_bytes()[..], b"late"].concat())
    }

    fn join(&self, request: &JoinRequest) -> Result<Box<dyn Group>> {
        let of_late = request
            .device
            .as_ref()
            .is_some_and(|device| device.backend == BACKEND);
        if !of_late || !request.invitation.ends_with(b"late") {
            return Err(PluginError::invalid(format!(
                "group `{}`: expected a device of `late` and an invitation, found {:?} and {} bytes",
                request.group,
                request.device,
                request.invitation.len()
            )));
        }
        // Who was invited together meets, whatever its group is called.
        let group = format!("{:?}", request.invitation);
        let group = self.threads.join(&JoinRequest {
            group,
            ..request.clone()
        })?;
        Ok(Box::new(Member::new(group, request.members.len())))
    }
}

const LATE_COLLECTIVE: Component = Component {
    name: "late-collective",
    role: Role::COLLECTIVE,
    doc: "joins devices of the backend `late` by tasks on their streams",
    options: &[],
    capabilities: &[],
    create: |_, _| Ok(Instance::Collective(Box::new(LateCollective::default()))),
};

espalier_interface::declare_plugin! { name: "late-collective", components: &[LATE_COLLECTIVE] }
