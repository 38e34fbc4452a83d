//! Collectives: communication between ranks, inside a process or across processes and machines.
//!
//! All members of a group make its calls in the same order, each from one thread at a time. A call
//! names addresses in memory that the collective can access. A collective whose
//! [`CollectiveInfo::memory`] names `host` takes host addresses, and is done when a call returns.
//! One that names backends takes native addresses of their devices, and puts its calls on a stream.
//! Sums are added in the order of the members, so that the same group gives the same bits each
//! time.

use std::fmt;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::{DType, PluginError, Result};

/// What members of a group are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Members {
    /// Threads of one process, which share the component.
    Threads,
    /// Processes, on one machine or many.
    Processes,
}

/// The properties of a collective.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CollectiveInfo {
    /// The kind of its members.
    pub members: Members,
    /// Dtypes that it can sum.
    pub dtypes: Vec<DType>,
    /// Memory whose addresses it accepts: `host`, or a backend's name.
    pub memory: Vec<String>,
    /// Most bytes that a member receives in one call.
    pub max_bytes: u64,
    /// Description for people: the library that it uses, and its version.
    pub description: String,
}

/// A member's request to join a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinRequest {
    /// The group's name, the same for all of its members. A name may be used again after all have
    /// left.
    pub group: String,
    /// Indices of the members among all threads of the process, or all processes, in their order in
    /// the group.
    pub members: Vec<u32>,
    /// Index of this member in `members`.
    pub member: u32,
    /// Number of all threads or processes.
    pub size: u32,
    /// Seconds to wait for the other members.
    pub timeout_secs: u64,
    /// The device that the member's addresses and streams are of; none for a collective on host
    /// memory.
    #[serde(default)]
    pub device: Option<MemberDevice>,
    /// The bytes of the first member's [`Collective::invite`]; empty for a collective on host
    /// memory.
    #[serde(default)]
    pub invitation: Vec<u8>,
}

/// A device as a collective on device memory names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberDevice {
    /// Name of its backend.
    pub backend: String,
    /// Its number as the libraries of the device count: [`crate::Streams::native_device`].
    pub number: u32,
}

/// What a collective call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct CollectiveOp(pub u32);

impl CollectiveOp {
    /// `recv`, `[members, count]`, holds every member's `send`, `[count]`, in the order of the
    /// members.
    pub const ALL_GATHER: CollectiveOp = CollectiveOp(1);
    /// `recv`, `[count]`, holds this member's part of the sum of all members' `send`, `[members,
    /// count]`.
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

    /// Its name; none for an id that this version does not know.
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
    /// The operation.
    pub op: CollectiveOp,
    /// Element type; bytes that are only moved are [`DType::U8`].
    pub dtype: DType,
    /// Number of elements; see the operation.
    pub count: u64,
    /// The member whose bytes are sent, for a broadcast.
    pub root: u32,
    /// The bytes sent. In place is allowed in three cases. An all-gather may send its own part of
    /// `recv`. A reduce-scatter may receive in its own part of `send`. An all-reduce may use the
    /// same bytes for both. Otherwise the two do not overlap.
    pub send: *const u8,
    /// The bytes received.
    pub recv: *mut u8,
    /// Handle of the stream that the call is put on; null where the call is done on return.
    pub stream: *const (),
}

impl CollectiveCall {
    /// Checks what a member can check alone, in a group of `members` members that sums `dtypes` in
    /// host memory.
    ///
    /// # Errors
    /// As [`CollectiveCall::check_operands`]; `UNSUPPORTED` for a call on a stream.
    pub fn check(&self, members: usize, dtypes: &[DType]) -> Result<()> {
        if !self.stream.is_null() {
            let message = format!("expected a call on no stream, found {} on one", self.op);
            return Err(PluginError::unsupported(message));
        }
        self.check_operands(members, dtypes)
    }

    /// Checks what a member can check alone, in a group of `members` members that sums `dtypes`, on
    /// a stream or none.
    ///
    /// # Errors
    /// `INVALID` for a size that exceeds memory, a sum in a dtype not in `dtypes`, and a root that
    /// is no member; `UNSUPPORTED` for an unknown operation.
    pub fn check_operands(&self, members: usize, dtypes: &[DType]) -> Result<()> {
        let (op, dtype) = (self.op, self.dtype);
        if op.name().is_none() {
            let message = format!("expected a call that is known here, found {op}");
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

    /// Whether two members make the same call.
    pub fn agrees(&self, other: &CollectiveCall) -> bool {
        let key = |call: &CollectiveCall| (call.op, call.dtype, call.count, call.root);
        key(self) == key(other)
    }

    /// The elements of an all-reduce that member `index` of `members` sums for all members.
    pub fn slice(&self, index: usize, members: usize) -> Range<usize> {
        let (count, members) = (u128::from(self.count), members as u128);
        let at = |index: usize| (count * index as u128 / members) as usize;
        at(index)..at(index + 1)
    }

    /// Bytes of `elements` elements.
    pub fn bytes(&self, elements: usize) -> usize {
        elements * self.dtype.bytes() as usize
    }

    /// The address of sent element `start`.
    pub fn send_at(&self, start: usize) -> *const u8 {
        self.send.wrapping_add(self.bytes(start))
    }

    /// The address of received element `start`.
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
    /// Its properties.
    ///
    /// # Errors
    /// `DEVICE` where a library that it uses is missing or fails; the message names it.
    fn describe(&self) -> Result<CollectiveInfo>;

    /// Bytes by which the members of a new group find each other, such as a unique id. The host
    /// calls it for the first member of a group on device memory, and passes the bytes to all.
    ///
    /// # Errors
    /// `DEVICE` where a library that it uses fails.
    fn invite(&self) -> Result<Vec<u8>> {
        Ok(Vec::new())
    }

    /// Bytes of a member's device that each of its groups takes, beside the memory of libraries; 0
    /// for a collective on the host.
    ///
    /// # Errors
    /// Those of the plugin.
    fn device_bytes(&self) -> Result<u64> {
        Ok(0)
    }

    /// Joins a group, and returns when all of its members have joined.
    ///
    /// # Errors
    /// `PEER` where members did not join in time; the message names them as far as they are known.
    fn join(&self, request: &JoinRequest) -> Result<Box<dyn Group>>;
}

/// A group that a member has joined.
pub trait Group: Send + Sync {
    /// Makes a call together with the other members. Until the call is done, the host guarantees
    /// that both addresses are valid for the operation's reads and writes, and unused by others.
    ///
    /// # Errors
    /// `PEER` once the group is aborted, and where members make different calls; `INVALID` for a
    /// dtype or size that the group does not accept.
    fn call(&self, call: &CollectiveCall) -> Result<()>;

    /// Aborts the group, from any thread: calls that wait return `PEER` soon, later ones at once.
    fn abort(&self);
}
