//! Collectives: what joins ranks, inside a process or across processes and machines.
//!
//! A group's calls are made in the same order by all of its members, each from one thread at a time. A call names addresses
//! of memory that the collective can reach, and may be put on a stream of the device that has it; without one it is done
//! when it returns. Sums are added in the order of the members, so that the same group gives the same bits each time.

use std::fmt;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::{DType, PluginError, Result};

/// What the members of a group are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Members {
    /// Threads of one process, which share the component.
    Threads,
    /// Processes, on one machine or many.
    Processes,
}

/// What a collective can do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CollectiveInfo {
    /// What its members are.
    pub members: Members,
    /// Dtypes that it sums.
    pub dtypes: Vec<DType>,
    /// Memory whose addresses it takes: `host`, or a backend's name.
    pub memory: Vec<String>,
    /// Most bytes that a member receives in one call.
    pub max_bytes: u64,
    /// What it is, for people: the library below it and its version.
    pub description: String,
}

/// What a member joins with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinRequest {
    /// The group's name, equal for all of its members. A name that was left may be used again.
    pub group: String,
    /// Numbers of the members among all there are (threads of the process, or processes), in their order in the group.
    pub members: Vec<u32>,
    /// The place of this member in `members`.
    pub member: u32,
    /// All there are.
    pub size: u32,
    /// Seconds to wait for the others to join.
    pub timeout_secs: u64,
}

/// What a collective call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct CollectiveOp(pub u32);

impl CollectiveOp {
    /// `recv`, `[members, count]`, holds every member's `send`, `[count]`, in the order of the members.
    pub const ALL_GATHER: CollectiveOp = CollectiveOp(1);
    /// `recv`, `[count]`, holds this member's part of the sum of all members' `send`, `[members, count]`.
    pub const REDUCE_SCATTER: CollectiveOp = CollectiveOp(2);
    /// `recv`, `[count]`, holds the sum of all members' `send`, `[count]`.
    pub const ALL_REDUCE: CollectiveOp = CollectiveOp(3);
    /// `recv`, `[count]`, holds what member `root` has in `send`, `[count]`.
    pub const BROADCAST: CollectiveOp = CollectiveOp(4);

    const NAMES: [(CollectiveOp, &'static str); 4] = [
        (Self::ALL_GATHER, "all-gather"),
        (Self::REDUCE_SCATTER, "reduce-scatter"),
        (Self::ALL_REDUCE, "all-reduce"),
        (Self::BROADCAST, "broadcast"),
    ];

    /// Its name; nothing for an id that this version does not know.
    pub fn name(self) -> Option<&'static str> {
        let known = Self::NAMES.iter().find(|(op, _)| *op == self);
        known.map(|(_, name)| *name)
    }
}

impl fmt::Display for CollectiveOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "collective op {}", self.0),
        }
    }
}

/// A call that all members of a group make together.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CollectiveCall {
    /// What it does.
    pub op: CollectiveOp,
    /// Element type; what is only moved is [`DType::U8`].
    pub dtype: DType,
    /// Elements; see the op.
    pub count: u64,
    /// The member whose bytes are sent, for a broadcast.
    pub root: u32,
    /// What is sent. In place is allowed: an all-gather may send its own place in `recv`, a reduce-scatter may receive in its
    /// own part of `send`, an all-reduce may send what it receives in. Else the two do not overlap.
    pub send: *const u8,
    /// What is received.
    pub recv: *mut u8,
    /// Handle of the stream that the call is put on; null: it is done on return.
    pub stream: *const (),
}

impl CollectiveCall {
    /// Checks what a member can check alone, in a group of `members` that sums `dtypes` in the host's memory.
    ///
    /// # Errors
    /// `INVALID` or `UNSUPPORTED`, in words.
    pub fn check(&self, members: usize, dtypes: &[DType]) -> Result<()> {
        let (op, dtype) = (self.op, self.dtype);
        if op.name().is_none() || !self.stream.is_null() {
            let message =
                format!("expected a call that is known here and on no stream, found {op}");
            return Err(PluginError::unsupported(message));
        }
        let part = dtype.bytes().checked_mul(self.count);
        let total = part.and_then(|bytes| bytes.checked_mul(members as u64));
        if dtype.bytes() == 0 || total.is_none_or(|total| total > isize::MAX as u64) {
            let message = format!("{self} of each of {members} members does not fit into memory");
            return Err(PluginError::invalid(message));
        }
        let sums = matches!(op, CollectiveOp::REDUCE_SCATTER | CollectiveOp::ALL_REDUCE);
        if sums && !dtypes.contains(&dtype) {
            let known: Vec<String> = dtypes.iter().map(|dtype| dtype.name()).collect();
            let message = format!(
                "expected a sum in one of {}, found {dtype}",
                known.join(", ")
            );
            return Err(PluginError::invalid(message));
        }
        if op == CollectiveOp::BROADCAST && self.root as usize >= members {
            let message = format!("broadcast of member {}, of {members}", self.root);
            return Err(PluginError::invalid(message));
        }
        Ok(())
    }

    /// Whether both are the same call, made by two members.
    pub fn agrees(&self, other: &CollectiveCall) -> bool {
        let key = |call: &CollectiveCall| (call.op, call.dtype, call.count, call.root);
        key(self) == key(other)
    }

    /// The elements that member `index` of `members` sums for all of them, of an all-reduce.
    pub fn slice(&self, index: usize, members: usize) -> Range<usize> {
        let (count, members) = (u128::from(self.count), members as u128);
        let at = |index: usize| (count * index as u128 / members) as usize;
        at(index)..at(index + 1)
    }

    /// Bytes of `elements` elements.
    pub fn bytes(&self, elements: usize) -> usize {
        elements * self.dtype.bytes() as usize
    }

    /// What it sends, from element `start` on.
    pub fn send_at(&self, start: usize) -> *const u8 {
        self.send.wrapping_add(self.bytes(start))
    }

    /// Where it receives, from element `start` on.
    pub fn recv_at(&self, start: usize) -> *mut u8 {
        self.recv.wrapping_add(self.bytes(start))
    }
}

impl fmt::Display for CollectiveCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} {}", self.op, self.count, self.dtype)
    }
}

/// A collective.
pub trait Collective: Send + Sync {
    /// What it can do.
    ///
    /// # Errors
    /// `DEVICE` where a library below it is missing or fails: the message names it.
    fn describe(&self) -> Result<CollectiveInfo>;

    /// Joins a group, and returns when all of its members have.
    ///
    /// # Errors
    /// `PEER` where some did not come in time, naming them as far as they are known.
    fn join(&self, request: &JoinRequest) -> Result<Box<dyn Group>>;
}

/// A member's end of a group that is joined.
pub trait Group: Send + Sync {
    /// Makes a call together with the other members. The host vouches for both addresses until the call is done: they are
    /// valid for what the op reads and writes, and used by nobody else.
    ///
    /// # Errors
    /// `PEER` once the group is aborted, and where members make different calls; `INVALID` for a dtype or size that it does
    /// not take.
    fn call(&self, call: &CollectiveCall) -> Result<()>;

    /// Gives the group up, from any thread: calls that wait return `PEER` soon, and later ones at once.
    fn abort(&self);
}
