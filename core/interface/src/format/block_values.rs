//! The number of each block of a weight: how it is stored.

use serde::{Deserialize, Serialize};

use super::{BlockMap, Codes};
use crate::DType;

/// A number for every block, as stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BlockValues {
    /// Stored as they are, one per element of the segment (f32, bf16 or f16).
    Stored {
        /// Index of the segment.
        segment: usize,
    },
    /// Stored between other bytes of a segment of u8, such as the codes of their blocks: the number
    /// of block `b` has the little-endian bytes from `start + b bytes` on, at any alignment. The
    /// blocks of GGUF's files are such.
    Interleaved {
        /// Index of the segment.
        segment: usize,
        /// What the bytes are of: f32, bf16 or f16.
        dtype: DType,
        /// Byte of the segment at which the number of block 0 begins.
        #[serde(default)]
        start: u64,
        /// Bytes from the beginning of a number to that of the next, at least those of `dtype`.
        bytes: u64,
    },
    /// The number of the block times that of its group: `values[b] * factors[b / size]`, in f32
    /// (the scales and minima of GGUF's q4_K). Both are `Stored`, `Interleaved` or a `Table`.
    Product {
        /// A number for each block.
        values: Box<BlockValues>,
        /// A number for each group of `size` blocks.
        factors: Box<BlockValues>,
        /// Blocks of a group.
        size: u64,
    },
    /// Quantized again (double quantization): `table[code[b]] * scale[b / size] + offset`.
    Nested {
        /// Index of the segment of 8-bit codes, one per block.
        codes: usize,
        /// The 256 values of the codes.
        table: Vec<f32>,
        /// Index of the segment of f32 scales, one per `size` blocks.
        scales: usize,
        /// Blocks per scale.
        size: u64,
        /// Index of the segment of one f32.
        offset: usize,
    },
    /// Quantized again, uniformly: `(code[b] - zero[g]) * scale[g]`, in f32, where `g` is the group
    /// of block `b` (HQQ's quantized zeros and scales).
    Affine {
        /// Index of the segment of 8-bit codes, one per block.
        codes: usize,
        /// How blocks form groups, as if the blocks were a weight of one row: `Flat` and `Strided`
        /// groups, or `Rows` for one group of all.
        groups: BlockMap,
        /// Index of the segment of scales, one per group (f32, bf16 or f16).
        scales: usize,
        /// Index of the segment of zero points, one per group (f32, bf16 or f16).
        zeros: usize,
    },
    /// Codes that stand for numbers: `table[code[b]]`, in f32, times or over one number of the
    /// whole weight where `scale` names it. Scales in E8M0 or E4M3 and packed zero points are
    /// such.
    Table {
        /// The codes, one per block in the order of blocks: of at most 8 bits, in any order but
        /// `Split`.
        codes: Codes,
        /// The `2^bits` values of the codes.
        table: Vec<f32>,
        /// Codes that stand for no number, such as the NaN of E8M0: of 8 bits only, and not in
        /// rows. The host refuses a weight that has one, so that their values in the table are
        /// never used.
        #[serde(default)]
        not_numbers: Vec<u8>,
        /// A number of the whole weight.
        #[serde(default)]
        scale: Option<TableScale>,
    },
}

impl BlockValues {
    /// The numbers that make them: the two of a product, else themselves.
    pub fn parts(&self) -> Vec<&BlockValues> {
        match self {
            BlockValues::Product {
                values, factors, ..
            } => vec![values, factors],
            values => vec![values],
        }
    }
}

/// The number of a whole weight by which the values of a table are scaled, in f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TableScale {
    /// `table[code] * number`.
    Times {
        /// Index of the segment of one f32.
        segment: usize,
    },
    /// `table[code] / number`, rounded once (the global scale of NVFP4 in compressed-tensors).
    Over {
        /// Index of the segment of one f32.
        segment: usize,
    },
}

impl TableScale {
    /// Index of the segment of one f32.
    pub fn segment(self) -> usize {
        match self {
            TableScale::Times { segment } | TableScale::Over { segment } => segment,
        }
    }

    /// The scaled value.
    #[inline]
    pub fn apply(self, value: f32, number: f32) -> f32 {
        match self {
            TableScale::Times { .. } => value * number,
            TableScale::Over { .. } => value / number,
        }
    }
}
