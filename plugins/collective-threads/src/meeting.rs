//! Members that join one by one -> the room that they share.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use espalier_interface::{ErrorCode, JoinRequest, PluginError, Result};

use crate::room::Room;

/// Groups that wait for members.
#[derive(Default)]
pub struct Meetings {
    open: Mutex<HashMap<String, Meeting>>,
    changed: Condvar,
}

/// A group that is being joined.
struct Meeting {
    members: Vec<u32>,
    came: Vec<bool>,
    room: Arc<Room>,
    /// Some members did not join in time.
    given_up: bool,
}

impl Meeting {
    fn missing(&self, request: &JoinRequest) -> PluginError {
        let absent = self.members.iter().zip(&self.came);
        let absent: Vec<String> = absent
            .filter(|&(_, &came)| !came)
            .map(|(number, _)| number.to_string())
            .collect();
        let message = format!(
            "group `{}`: thread {} did not come within {} s",
            request.group,
            absent.join(", "),
            request.timeout_secs
        );
        PluginError::new(ErrorCode::PEER, message)
    }
}

impl Meetings {
    /// Waits until all members of a group have joined.
    ///
    /// # Errors
    /// `INVALID` for a request that contradicts itself or another member's; `PEER` where some
    /// members did not join in time.
    pub fn join(&self, request: &JoinRequest) -> Result<Arc<Room>> {
        check(request)?;
        let member = request.member as usize;
        let mut open = self.lock();
        let meeting = open
            .entry(request.group.clone())
            .or_insert_with(|| Meeting {
                members: request.members.clone(),
                came: vec![false; request.members.len()],
                room: Arc::new(Room::new(request.members.len())),
                given_up: false,
            });
        if meeting.members != request.members {
            return Err(PluginError::invalid(format!(
                "group `{}`: member {member} expects members {:?}, another one {:?}",
                request.group, request.members, meeting.members
            )));
        }
        if meeting.given_up {
            return Err(meeting.missing(request));
        }
        if std::mem::replace(&mut meeting.came[member], true) {
            return Err(PluginError::invalid(format!(
                "group `{}`: member {member} joins it twice",
                request.group
            )));
        }
        let room = Arc::clone(&meeting.room);
        if meeting.came.iter().all(|&came| came) {
            open.remove(&request.group);
            self.changed.notify_all();
            return Ok(room);
        }
        self.wait(open, request, &room)?;
        Ok(room)
    }

    /// Waits until the group of `room` is complete, and thereby closed.
    fn wait(
        &self,
        mut open: MutexGuard<'_, HashMap<String, Meeting>>,
        request: &JoinRequest,
        room: &Arc<Room>,
    ) -> Result<()> {
        let end = Instant::now() + Duration::from_secs(request.timeout_secs);
        loop {
            let meeting = open.get_mut(&request.group);
            let Some(meeting) = meeting.filter(|meeting| Arc::ptr_eq(&meeting.room, room)) else {
                return Ok(());
            };
            let left = end.saturating_duration_since(Instant::now());
            if meeting.given_up || left.is_zero() {
                // The others stop waiting, and late members get the error at once.
                meeting.given_up = true;
                self.changed.notify_all();
                return Err(meeting.missing(request));
            }
            let waited = self.changed.wait_timeout(open, left);
            open = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Meeting>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn check(request: &JoinRequest) -> Result<()> {
    let fits = (request.member as usize) < request.members.len()
        && request.members.iter().all(|&one| one < request.size);
    if fits {
        Ok(())
    } else {
        Err(PluginError::invalid(format!(
            "group `{}`: expected one of its members and numbers below {}, found member {} of {:?}",
            request.group, request.size, request.member, request.members
        )))
    }
}
