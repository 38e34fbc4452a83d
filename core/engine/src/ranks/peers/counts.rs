//! Calls and bytes of a rank, by group and kind.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Among;

/// What a call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CallKind {
    /// All-gather: concatenates parts.
    AllGather,
    /// Reduce-scatter: sums, and gives each rank its part.
    ReduceScatter,
    /// All-reduce: sums.
    AllReduce,
    /// Sends each rank's message to all.
    Exchange,
}

impl fmt::Display for CallKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CallKind::AllGather => "all_gather",
            CallKind::ReduceScatter => "reduce_scatter",
            CallKind::AllReduce => "all_reduce",
            CallKind::Exchange => "exchange",
        })
    }
}

/// Calls of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// How many.
    pub calls: u64,
    /// Bytes that left the rank, one of `n`: `n - 1` parts for an all-gather and a reduce-scatter,
    /// `2 (n - 1) / n` of the data for an all-reduce, on every route.
    pub bytes: u64,
}

/// All calls of a rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts([[Count; 4]; 3]);

impl Counts {
    /// The calls of a kind among some ranks.
    pub fn of(&self, among: Among, kind: CallKind) -> Count {
        self.0[among as usize][kind as usize]
    }

    /// Bytes of all calls.
    pub fn bytes(&self) -> u64 {
        self.0.iter().flatten().map(|count| count.bytes).sum()
    }

    /// The calls after `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Counts) -> Counts {
        let mut counts = *self;
        let pairs = counts
            .0
            .iter_mut()
            .flatten()
            .zip(earlier.0.iter().flatten());
        for (count, earlier) in pairs {
            count.calls -= earlier.calls;
            count.bytes -= earlier.bytes;
        }
        counts
    }
}

/// Counts while calls are made.
#[derive(Debug, Default)]
pub(super) struct Counter([[(AtomicU64, AtomicU64); 4]; 3]);

impl Counter {
    /// One more call.
    pub fn add(&self, among: Among, kind: CallKind, bytes: u64) {
        let (calls, sent) = &self.0[among as usize][kind as usize];
        calls.fetch_add(1, Ordering::Relaxed);
        sent.fetch_add(bytes, Ordering::Relaxed);
    }

    /// What was counted.
    pub fn counts(&self) -> Counts {
        let read = |(calls, bytes): &(AtomicU64, AtomicU64)| Count {
            calls: calls.load(Ordering::Relaxed),
            bytes: bytes.load(Ordering::Relaxed),
        };
        Counts(std::array::from_fn(|among| {
            std::array::from_fn(|kind| read(&self.0[among][kind]))
        }))
    }
}
