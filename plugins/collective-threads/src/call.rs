//! A member's call as the others see it.

use std::ops::Range;

use espalier_interface::{CollectiveCall, CollectiveOp, DType, PluginError, Result};
use espalier_kernels::ordered_sum::DTYPES;

/// What a member shows of its call.
#[derive(Clone, Copy, Debug)]
pub struct Shown {
    op: CollectiveOp,
    dtype: DType,
    count: u64,
    root: u32,
    send: *const u8,
    recv: *mut u8,
}

// SAFETY: the addresses are followed only while the member that shows them waits for all others.
#[allow(unsafe_code)]
unsafe impl Send for Shown {}

impl Shown {
    /// What a call shows.
    pub fn new(call: &CollectiveCall) -> Self {
        Shown {
            op: call.op,
            dtype: call.dtype,
            count: call.count,
            root: call.root,
            send: call.send,
            recv: call.recv,
        }
    }

    /// Checks what a member can check alone, in a group of `members`.
    ///
    /// # Errors
    /// `INVALID` or `UNSUPPORTED`, in words.
    pub fn check(call: &CollectiveCall, members: usize) -> Result<()> {
        if !call.stream.is_null() {
            let message = "threads take no calls on a stream: synchronize and call without one";
            return Err(PluginError::unsupported(message));
        }
        if name(call.op).is_none() {
            let message = format!("collective op {} is unknown to `threads`", call.op.0);
            return Err(PluginError::unsupported(message));
        }
        let bytes = call.dtype.bytes().checked_mul(call.count);
        let total = bytes.and_then(|bytes| bytes.checked_mul(members as u64));
        if call.dtype.bytes() == 0 || total.is_none_or(|total| total > isize::MAX as u64) {
            let message = format!("{} elements of {} do not fit", call.count, call.dtype);
            return Err(PluginError::invalid(message));
        }
        let sums = matches!(
            call.op,
            CollectiveOp::REDUCE_SCATTER | CollectiveOp::ALL_REDUCE
        );
        if sums && !DTYPES.contains(&call.dtype) {
            let known = DTYPES.map(|dtype| dtype.name()).join(", ");
            let message = format!("expected a sum in one of {known}, found {}", call.dtype);
            return Err(PluginError::invalid(message));
        }
        if call.op == CollectiveOp::BROADCAST && call.root as usize >= members {
            let message = format!("broadcast of member {}, of {members}", call.root);
            return Err(PluginError::invalid(message));
        }
        Ok(())
    }

    /// Whether both make the same call.
    pub fn agrees(&self, other: &Shown) -> bool {
        let key = |call: &Shown| (call.op, call.dtype, call.count, call.root);
        key(self) == key(other)
    }

    /// What it does.
    pub fn op(&self) -> CollectiveOp {
        self.op
    }

    /// Its elements.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Elements of the call.
    pub fn count(&self) -> usize {
        self.count as usize
    }

    /// Bytes of `elements` elements.
    pub fn bytes(&self, elements: usize) -> usize {
        elements * self.dtype.bytes() as usize
    }

    /// The member that a broadcast sends.
    pub fn root(&self) -> usize {
        self.root as usize
    }

    /// What it sends, from element `start` on.
    pub fn send(&self, start: usize) -> *const u8 {
        self.send.wrapping_add(self.bytes(start))
    }

    /// Where it receives, from element `start` on.
    pub fn recv(&self, start: usize) -> *mut u8 {
        self.recv.wrapping_add(self.bytes(start))
    }

    /// The elements that member `index` of `members` sums of what all of them get.
    pub fn slice(&self, index: usize, members: usize) -> Range<usize> {
        let (count, members) = (self.count() as u128, members as u128);
        let at = |index: usize| (count * index as u128 / members) as usize;
        at(index)..at(index + 1)
    }
}

impl std::fmt::Display for Shown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let op = name(self.op).unwrap_or("unknown");
        write!(f, "{op} of {} {}", self.count, self.dtype)
    }
}

fn name(op: CollectiveOp) -> Option<&'static str> {
    let names = [
        (CollectiveOp::ALL_GATHER, "all-gather"),
        (CollectiveOp::REDUCE_SCATTER, "reduce-scatter"),
        (CollectiveOp::ALL_REDUCE, "all-reduce"),
        (CollectiveOp::BROADCAST, "broadcast"),
    ];
    names
        .into_iter()
        .find(|&(known, _)| known == op)
        .map(|(_, name)| name)
}
