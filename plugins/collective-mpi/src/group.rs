//! A process's member of a group: a call -> messages to and from the other members, and sums of
//! received parts.
#![allow(unsafe_code)] // Memory that the host guarantees to be valid.

use std::ops::Range;

use espalier_interface::{CollectiveCall, CollectiveOp, DType, Group, JoinRequest, Result};
use espalier_kernels::ordered_sum::{DTYPES, ordered_sum};

use crate::peer;
use crate::process::Process;
use crate::transfer::Transfer;

/// Bytes of each member's part that are summed at once: received parts are in memory of the group.
const PIECE: usize = 1 << 20;

/// Bytes up to which each member of an all-reduce sums all of it: one exchange instead of two.
const SMALL: usize = 16 << 10;

/// Fields of a call that members exchange before it: op, dtype, root and count.
type Header = [u8; 24];

/// A member of a group.
pub struct MpiGroup {
    name: String,
    /// Ranks of the processes.
    members: Vec<u32>,
    index: usize,
    process: &'static Process,
    tag: i32,
}

impl MpiGroup {
    /// The member of a request, in the group that it joined, whose messages have `tag`.
    pub fn new(request: &JoinRequest, process: &'static Process, tag: i32) -> Self {
        MpiGroup {
            name: request.group.clone(),
            members: request.members.clone(),
            index: request.member as usize,
            process,
            tag,
        }
    }

    /// Exchanges messages: `parts` gives the memory to send to each other member and to receive
    /// into from it.
    ///
    /// # Safety
    /// The memory of `parts` is valid, and not used elsewhere, until this returns.
    unsafe fn exchange(
        &self,
        parts: impl Fn(usize) -> ((*const u8, usize), (*mut u8, usize)),
    ) -> Result<()> {
        let mut transfer = Transfer::new(self.process, self.tag);
        let others =
            || (1..self.members.len()).map(|step| (self.index + step) % self.members.len());
        for other in others() {
            let (_, (to, bytes)) = parts(other);
            // SAFETY: the caller's promise.
            unsafe { transfer.receive(self.members[other], to, bytes) };
        }
        for other in others() {
            let ((from, bytes), _) = parts(other);
            // SAFETY: the caller's promise.
            unsafe { transfer.send(self.members[other], from, bytes) };
        }
        transfer.finish(None).map_err(|stopped| {
            // Messages of this tag are lost: later ones cannot be matched any more.
            self.process.break_off();
            peer(&self.name, stopped)
        })
    }

    /// Checks that all members make the same call.
    fn agree(&self, call: &CollectiveCall) -> Result<()> {
        let own = header(call);
        let mut found = vec![own; self.members.len()];
        let start: *mut Header = found.as_mut_ptr();
        // SAFETY: each member has a separate place.
        unsafe {
            self.exchange(|other| {
                let to = start.add(other).cast();
                ((own.as_ptr(), own.len()), (to, own.len()))
            })?;
        }
        let Some(other) = found.iter().position(|found| *found != own) else {
            return Ok(());
        };
        self.process.break_off();
        let what = format!(
            "its members make different calls: process {} {}, process {} {}",
            self.members[self.index],
            call,
            self.members[other],
            read_header(&found[other])
        );
        Err(peer(&self.name, what))
    }

    /// Collects in `call.recv` each member's part, at its range of elements.
    fn gather(&self, call: &CollectiveCall, range: impl Fn(usize) -> Range<usize>) -> Result<()> {
        let at = |member: usize| {
            let range = range(member);
            (call.recv_at(range.start), call.bytes(range.len()))
        };
        let (own, bytes) = at(self.index);
        // SAFETY: the host guarantees `recv`; the ranges do not overlap.
        unsafe { self.exchange(|other| ((own.cast_const(), bytes), at(other))) }
    }

    /// Sums into `out` this member's range of elements over all members' data.
    fn sum(
        &self,
        call: &CollectiveCall,
        range: impl Fn(usize) -> Range<usize>,
        out: *mut u8,
    ) -> Result<()> {
        let longest = (0..self.members.len())
            .map(|member| range(member).len())
            .max();
        let longest = longest.unwrap_or(0);
        let step = PIECE / call.bytes(1);
        let slot = call.bytes(step.min(longest));
        let mut scratch = vec![0u8; slot * self.members.len()];
        let scratch = scratch.as_mut_ptr();
        for start in (0..longest).step_by(step) {
            // A member's piece of this round; late ones of short ranges are empty.
            let piece = |member: usize| {
                let range = range(member);
                let first = (range.start + start).min(range.end);
                first..(first + step).min(range.end)
            };
            let own = piece(self.index);
            // SAFETY: each member has a separate slot; the host guarantees `send`. Only the own
            // range of it is written in place, and that range is not sent.
            unsafe {
                self.exchange(|other| {
                    let sent = piece(other);
                    let from = (call.send_at(sent.start), call.bytes(sent.len()));
                    (from, (scratch.add(other * slot), call.bytes(own.len())))
                })?;
            }
            let part = |member: usize| match member == self.index {
                true => call.send_at(own.start),
                false => scratch.wrapping_add(member * slot).cast_const(),
            };
            let parts: Vec<*const u8> = (0..self.members.len()).map(part).collect();
            let out = out.wrapping_add(call.bytes(start));
            // SAFETY: as above; `out` has room for the member's range and is, in place, at its own
            // part.
            unsafe { ordered_sum(call.dtype, &parts, out, own.len()) }?;
        }
        Ok(())
    }

    /// All members receive all of a few elements, and each sums them itself.
    fn all_reduce_small(&self, call: &CollectiveCall) -> Result<()> {
        let count = call.count as usize;
        let slot = call.bytes(count);
        let mut scratch = vec![0u8; slot * self.members.len()];
        let scratch = scratch.as_mut_ptr();
        // SAFETY: each member has a separate slot; the host guarantees `send` and `recv`.
        unsafe {
            self.exchange(|other| ((call.send, slot), (scratch.add(other * slot), slot)))?;
            let part = |member: usize| match member == self.index {
                true => call.send,
                false => scratch.add(member * slot).cast_const(),
            };
            let parts: Vec<*const u8> = (0..self.members.len()).map(part).collect();
            ordered_sum(call.dtype, &parts, call.recv, count)
        }
    }

    fn broadcast(&self, call: &CollectiveCall) -> Result<()> {
        let (root, bytes) = (call.root as usize, call.bytes(call.count as usize));
        let is_root = self.index == root;
        if is_root {
            copy(call.send, call.recv, bytes);
        }
        let sent = if is_root { bytes } else { 0 };
        let taken = |other| if other == root { bytes } else { 0 };
        // SAFETY: the host guarantees both.
        unsafe { self.exchange(|other| ((call.send, sent), (call.recv, taken(other)))) }
    }
}

impl Group for MpiGroup {
    fn call(&self, call: &CollectiveCall) -> Result<()> {
        call.check(self.members.len(), &DTYPES)?;
        self.agree(call)?;
        let (members, count) = (self.members.len(), call.count as usize);
        let even = |member: usize| member * count..(member + 1) * count;
        let slice = |member: usize| call.slice(member, members);
        match call.op {
            CollectiveOp::ALL_GATHER => {
                let own = call.recv_at(self.index * count);
                copy(call.send, own, call.bytes(count));
                self.gather(call, even)
            }
            CollectiveOp::REDUCE_SCATTER => self.sum(call, even, call.recv),
            CollectiveOp::BROADCAST => self.broadcast(call),
            // All-reduce: small ones in one exchange; otherwise each sums a slice, and all receive
            // all slices.
            _ if call.bytes(count) <= SMALL => self.all_reduce_small(call),
            _ => {
                self.sum(call, slice, call.recv_at(slice(self.index).start))?;
                self.gather(call, slice)
            }
        }
    }

    fn abort(&self) {
        self.process.break_off();
    }
}

impl Drop for MpiGroup {
    fn drop(&mut self) {
        self.process.left();
    }
}

fn header(call: &CollectiveCall) -> Header {
    let mut header = [0; 24];
    header[..4].copy_from_slice(&call.op.0.to_le_bytes());
    header[4..8].copy_from_slice(&call.dtype.0.to_le_bytes());
    header[8..12].copy_from_slice(&call.root.to_le_bytes());
    header[16..].copy_from_slice(&call.count.to_le_bytes());
    header
}

/// The call in another member's header.
fn read_header(header: &Header) -> CollectiveCall {
    let number = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("four bytes"));
    CollectiveCall {
        op: CollectiveOp(number(0)),
        dtype: DType(number(4)),
        root: number(8),
        count: u64::from_le_bytes(header[16..].try_into().expect("eight bytes")),
        send: std::ptr::null(),
        recv: std::ptr::null_mut(),
        stream: std::ptr::null(),
    }
}

/// Copies bytes, unless source and target are the same.
fn copy(from: *const u8, to: *mut u8, bytes: usize) {
    if from != to.cast_const() {
        // SAFETY: the host guarantees both; unless they are the same, they do not overlap.
        unsafe { std::ptr::copy_nonoverlapping(from, to, bytes) };
    }
}
