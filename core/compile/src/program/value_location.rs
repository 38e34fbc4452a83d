//! A value's place in a run's memory: region, first byte, and size as a function of the batch.

use espalier_interface::graph::batch;
use espalier_interface::{PluginError, Result};

/// A part of a run's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueMemory {
    /// A tensor of the micro-batch, by its index in [`BATCH`].
    Batch(usize),
    /// The arena; offsets count from its start.
    Arena,
    /// The [`SavedBlock`](super::SavedBlock) of the unit with this index; offsets count from the
    /// start of the block.
    Saved(usize),
}

/// The tensors of a micro-batch in their order in the buffer.
pub const BATCH: [&str; 5] = [
    batch::TOKENS,
    batch::POSITIONS,
    batch::LABELS,
    batch::SEQUENCES,
    batch::CU_SEQLENS,
];

/// The size of a value as a function of the micro-batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Bytes, for every micro-batch.
    Fixed(u64),
    /// Bytes per token.
    PerToken(u64),
    /// Four bytes per sequence boundary: `S + 1` of them.
    Boundaries,
}

impl Extent {
    /// Bytes for `tokens` tokens of `sequences` sequences.
    pub fn bytes(self, tokens: u64, sequences: u64) -> u64 {
        match self {
            Extent::Fixed(bytes) => bytes,
            Extent::PerToken(bytes) => bytes * tokens,
            Extent::Boundaries => 4 * (sequences + 1),
        }
    }
}

/// A value's place in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueLocation {
    /// The memory that holds it.
    pub region: ValueMemory,
    /// First byte within the region.
    pub offset: u64,
    /// Size.
    pub extent: Extent,
    /// Whether a chunk of tokens uses only its own rows of the value. True for the values that a
    /// head shares with the rest of the step.
    pub by_chunk: bool,
}

impl ValueLocation {
    /// A place in the arena that launches use as a whole.
    pub(super) fn in_arena(offset: u64, extent: Extent) -> Self {
        ValueLocation {
            region: ValueMemory::Arena,
            offset,
            extent,
            by_chunk: false,
        }
    }

    /// The place of the batch tensor `name`.
    ///
    /// # Errors
    /// `INVALID` where [`BATCH`] has no tensor of that name.
    pub(super) fn of_batch(name: &str, by_chunk: bool) -> Result<Self> {
        let Some(index) = BATCH.iter().position(|known| *known == name) else {
            return Err(PluginError::invalid(format!(
                "no batch tensor `{name}`: there are {}",
                BATCH.join(", ")
            )));
        };
        let extent = if name == batch::CU_SEQLENS {
            Extent::Boundaries
        } else {
            Extent::PerToken(4)
        };
        Ok(ValueLocation {
            region: ValueMemory::Batch(index),
            offset: 0,
            extent,
            by_chunk,
        })
    }
}
