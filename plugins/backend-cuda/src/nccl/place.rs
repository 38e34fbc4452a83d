//! A request to join -> a member's place in a group.

use std::ffi::c_int;
use std::time::Duration;

use cudarc::nccl::sys::ncclUniqueId;
use espalier_interface::{JoinRequest, PluginError, Result};

use super::BACKEND;

/// A member's place in a group, as a request names it.
pub struct Place {
    /// The group's name.
    pub group: String,
    /// The member's number.
    pub member: c_int,
    /// How many there are.
    pub members: usize,
    /// The member's card.
    pub card: u32,
    /// The invitation.
    pub id: ncclUniqueId,
    /// How long to wait for the other members.
    pub timeout: Duration,
}

impl Place {
    /// The place that `request` asks for.
    ///
    /// # Errors
    /// `INVALID` for a member that is not of the group, a device of another backend and an
    /// invitation that is no id.
    pub fn of(request: &JoinRequest) -> Result<Self> {
        let invalid =
            |what: String| PluginError::invalid(format!("NCCL: group `{}`: {what}", request.group));
        let members = request.members.len();
        if request.member as usize >= members {
            let member = request.member;
            let what = format!("expected one of {members} members, found member {member}");
            return Err(invalid(what));
        }
        let device = request.device.as_ref();
        let device = device.filter(|device| device.backend == BACKEND);
        let device = device.ok_or_else(|| {
            let found = &request.device;
            invalid(format!("expected a device of `{BACKEND}`, found {found:?}"))
        })?;
        let id: [u8; 128] = request.invitation.as_slice().try_into().map_err(|_| {
            let bytes = request.invitation.len();
            invalid(format!("expected an id of 128 bytes, found {bytes}"))
        })?;
        Ok(Place {
            group: request.group.clone(),
            member: request.member as c_int,
            members,
            card: device.number,
            id: ncclUniqueId {
                internal: id.map(|byte| byte as _),
            },
            timeout: Duration::from_secs(request.timeout_secs),
        })
    }
}
