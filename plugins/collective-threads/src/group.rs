//! A member of a group: a call -> its own part of the result, computed from the others' memory.
#![allow(unsafe_code)] // Memory of other threads, which wait meanwhile.

use std::sync::Arc;

use espalier_interface::{
    CollectiveCall, CollectiveOp, ErrorCode, Group, JoinRequest, PluginError, Result,
};
use espalier_kernels::ordered_sum::{DTYPES, ordered_sum};

use crate::room::{Next, Room, Shown};

/// A member of a group.
pub struct Member {
    name: String,
    numbers: Vec<u32>,
    index: usize,
    room: Arc<Room>,
}

impl Member {
    /// The member of a request, in the room that it joined.
    pub fn new(request: &JoinRequest, room: Arc<Room>) -> Self {
        Member {
            name: request.group.clone(),
            numbers: request.members.clone(),
            index: request.member as usize,
            room,
        }
    }

    fn peer(&self, what: &str) -> PluginError {
        PluginError::new(ErrorCode::PEER, format!("group `{}`: {what}", self.name))
    }

    fn given_up(&self) -> PluginError {
        self.peer("it was given up while its members called together")
    }

    /// The first member whose call differs from the first member's, in words.
    fn disagreement(&self, shown: &[CollectiveCall]) -> Option<String> {
        let other = shown.iter().position(|call| !call.agrees(&shown[0]))?;
        Some(format!(
            "its members make different calls: thread {} {}, thread {} {}",
            self.numbers[0], shown[0], self.numbers[other], shown[other]
        ))
    }

    /// Computes this member's part; afterwards all have theirs.
    fn work(&self, shown: &[CollectiveCall]) -> Result<()> {
        let own = &shown[self.index];
        let (members, count) = (shown.len(), own.count as usize);
        match own.op {
            CollectiveOp::ALL_GATHER => {
                for (index, other) in shown.iter().enumerate() {
                    copy(other.send, own.recv_at(index * count), own.bytes(count));
                }
            }
            CollectiveOp::REDUCE_SCATTER => {
                self.sum(shown, self.index * count, own.recv, count)?;
            }
            CollectiveOp::BROADCAST => {
                copy(shown[own.root as usize].send, own.recv, own.bytes(count));
            }
            // All-reduce: each sums a slice, then copies the others'.
            _ => {
                let slice = own.slice(self.index, members);
                self.sum(shown, slice.start, own.recv_at(slice.start), slice.len())?;
                self.room.finish(Next::Work).map_err(|_| self.given_up())?;
                for (index, other) in shown.iter().enumerate() {
                    let slice = own.slice(index, members);
                    let bytes = own.bytes(slice.len());
                    copy(other.recv_at(slice.start), own.recv_at(slice.start), bytes);
                }
            }
        }
        Ok(())
    }

    /// Adds `count` elements from element `start` of each member's data, in the order of the
    /// members.
    fn sum(
        &self,
        shown: &[CollectiveCall],
        start: usize,
        out: *mut u8,
        count: usize,
    ) -> Result<()> {
        let parts: Vec<*const u8> = shown.iter().map(|call| call.send_at(start)).collect();
        // SAFETY: each member guarantees its memory and waits until all are done; this part is read
        // and written by this member alone. In place, `out` is the start of the own part.
        unsafe { ordered_sum(shown[self.index].dtype, &parts, out, count) }
    }
}

impl Group for Member {
    fn call(&self, call: &CollectiveCall) -> Result<()> {
        call.check(self.numbers.len(), &DTYPES)?;
        let shown = self.room.show(self.index, Shown(*call));
        let shown = shown.map_err(|_| self.given_up())?;
        if let Some(what) = self.disagreement(&shown) {
            self.room.abort();
            // Waits until the others have read the failure too.
            let _ = self.room.finish(Next::Leave);
            return Err(self.peer(&what));
        }
        self.work(&shown)?;
        self.room.finish(Next::Leave).map_err(|_| self.given_up())
    }

    fn abort(&self) {
        self.room.abort();
    }
}

impl Drop for Member {
    /// A group that lost a member can make no call.
    fn drop(&mut self) {
        self.room.abort();
    }
}

/// Copies bytes, unless source and target are the same.
fn copy(from: *const u8, to: *mut u8, bytes: usize) {
    if from != to.cast_const() {
        // SAFETY: the members guarantee their memory and wait until all are done. Unless they are
        // the same, source and target do not overlap.
        unsafe { std::ptr::copy_nonoverlapping(from, to, bytes) };
    }
}
