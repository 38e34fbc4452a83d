//! The memory that a program works in: the parts of its arena, and a block of saved values per
//! unit.

use super::Limits;
use super::value_location::{Extent, ValueLocation, ValueMemory};
use crate::arena::aligned;

/// The parts of the arena in their order, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArenaLayout {
    /// Keys and values of earlier tokens, which nothing else overwrites.
    pub cache: u64,
    /// Values saved for the backward pass that more than one unit reads, so that no
    /// [`SavedBlock`] holds them.
    pub saved: u64,
    /// Hidden states and their gradients between units, and the loss of each token.
    pub passing: u64,
    /// Working memory of the embedding and the layers.
    pub work: u64,
    /// Working memory that a chunk of the head needs beyond `work`.
    pub logits: u64,
    /// Place of each token's loss; none where the program generates.
    pub loss: Option<ValueLocation>,
    /// Place of each token's flag whether its label was the likeliest; none where `loss` is none.
    pub correct: Option<ValueLocation>,
}

impl ArenaLayout {
    /// Bytes of the whole arena.
    pub fn bytes(&self) -> u64 {
        self.cache + self.saved + self.passing + self.work + self.logits
    }

    /// Bytes of the values that outlast a unit's pass, which each of several micro-batches has for
    /// itself where a unit runs them in turn.
    pub fn micro_batch_bytes(&self) -> u64 {
        self.saved + self.passing
    }

    /// Whether the byte at `offset` belongs to those values.
    pub fn is_of_micro_batch(&self, offset: u64) -> bool {
        (self.cache..self.work_begin()).contains(&offset)
    }

    /// First byte of `passing`.
    pub(super) fn passing_begin(&self) -> u64 {
        self.cache + self.saved
    }

    /// First byte of `work`.
    pub(super) fn work_begin(&self) -> u64 {
        self.passing_begin() + self.passing
    }
}

/// Values that a unit saves and only its own backward pass reads: its input, and forward values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SavedBlock {
    /// Bytes at the largest micro-batch.
    pub bytes: u64,
    /// First byte and size of each value.
    pub values: Vec<(u64, Extent)>,
}

impl SavedBlock {
    /// Appends a value to the block of the unit with index `unit`.
    pub(super) fn put(&mut self, unit: usize, extent: Extent, limits: Limits) -> ValueLocation {
        let offset = self.bytes;
        self.values.push((offset, extent));
        self.bytes += aligned(extent.bytes(limits.max_tokens, limits.max_sequences));
        ValueLocation {
            region: ValueMemory::Saved(unit),
            offset,
            extent,
            by_chunk: false,
        }
    }
}
