//! Collectives: what joins ranks, inside a process or across processes and machines.
//!
//! A group's calls are made in the same order by all of its members, each from one thread at a time. A call names addresses
//! of memory that the collective can reach, and may be put on a stream of the device that has it; without one it is done
//! when it returns. Sums are added in the order of the members, so that the same group gives the same bits each time.

use serde::{Deserialize, Serialize};

use crate::{DType, Result};

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
