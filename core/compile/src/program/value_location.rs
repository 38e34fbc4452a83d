//! A value's place in a run's memory: region, first byte, and size as a function of the batch.

use espalier_interface::graph::batch::{self, LengthPositions};
use espalier_interface::{PluginError, Result};

/// A part of a run's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueMemory {
    /// A tensor of the micro-batch, by its index in [`BATCH`] and, behind those, in
    /// [`Program::by_length`](super::Program::by_length).
    Batch(usize),
    /// The arena; offsets count from its start.
    Arena,
    /// The [`SavedBlock`](super::SavedBlock) of the unit with this index; offsets count from the
    /// start of the block.
    Saved(usize),
}

/// The tensors that every micro-batch has, in their order in the buffer.
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

    /// The place of the batch tensor `name`, where those of `by_length` follow [`BATCH`].
    ///
    /// # Errors
    /// `INVALID` where neither has a tensor of that name.
    pub(super) fn of_batch(
        name: &str,
        by_length: &[LengthPositions],
        by_chunk: bool,
    ) -> Result<Self> {
        let known = BATCH.iter().position(|known| *known == name);
        let index = known.or_else(|| {
            let wanted = LengthPositions::of_name(name)?;
            let behind = by_length.iter().position(|one| *one == wanted)?;
            Some(BATCH.len() + behind)
        });
        let Some(index) = index else {
            return Err(PluginError::invalid(format!(
                "no batch tensor `{name}`: there are {}, and positions_up_to_N and \
                 positions_beyond_N of a number N of tokens",
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
