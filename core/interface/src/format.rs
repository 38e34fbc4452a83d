//! The layout of a packed weight as data, from which every backend builds its own kernels.
//!
//! A weight is `[N, M]`, row major; element `(r, c)` has the flat index `i = r M + c`.

mod block_values;
mod code_rows;
mod codes;
mod decode;
mod device_code;
mod steps;
mod validate;
mod vectors;

#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use crate::DType;

pub use block_values::{BlockValues, TableScale};
pub use code_rows::{CodeRows, RowOrder};
pub use codes::{BitOrder, CodeRun, Codes};
pub use device_code::DeviceCode;
pub use steps::{Step, ValueSource, hadamard};
pub use vectors::{Codebook, Vectors};

/// A named array of a packed weight. Its size is a pure function of shape and options.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentSpec {
    /// Name, such as `codes` or `absmax`.
    pub name: String,
    /// Element type of the bytes.
    pub dtype: DType,
    /// Number of elements.
    pub len: u64,
}

impl SegmentSpec {
    /// A segment of `len` elements.
    pub fn new(name: &str, dtype: DType, len: u64) -> Self {
        SegmentSpec {
            name: name.to_owned(),
            dtype,
            len,
        }
    }

    /// Size in bytes; `u64::MAX` where that overflows.
    pub fn bytes(&self) -> u64 {
        self.len.saturating_mul(self.dtype.bytes())
    }
}

/// Which block an element belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BlockMap {
    /// Block `i / size`: consecutive elements of the flattened weight (bitsandbytes; HQQ axis 1).
    Flat {
        /// Elements per block.
        size: u64,
    },
    /// Block `i mod count`: elements `count` apart (HQQ axis 0).
    Strided {
        /// Number of blocks.
        count: u64,
    },
    /// Block `r`: one per row.
    Rows,
    /// Block `c`: one per column.
    Columns,
    /// Block `r ceil(M / size) + c / size`: consecutive elements of a row. No block crosses a row;
    /// the last of a row may have fewer elements.
    Groups {
        /// Most elements per block.
        size: u64,
    },
}

impl BlockMap {
    /// The block of element `(row, col)` of a weight with `cols` columns.
    #[inline]
    pub fn block(self, row: u64, col: u64, cols: u64) -> u64 {
        match self {
            BlockMap::Flat { size } => (row * cols + col) / size,
            BlockMap::Strided { count } => (row * cols + col) % count,
            BlockMap::Rows => row,
            BlockMap::Columns => col,
            BlockMap::Groups { size } => row * cols.div_ceil(size) + col / size,
        }
    }

    /// Writes the map as `Flat` where the blocks of a weight of `cols` columns are the same.
    fn simplify(&mut self, cols: u64) {
        if let BlockMap::Groups { size } = *self
            && cols.is_multiple_of(size)
        {
            *self = BlockMap::Flat { size };
        }
    }

    /// Number of blocks of a weight `[rows, cols]`.
    pub fn count(self, [rows, cols]: [u64; 2]) -> u64 {
        match self {
            BlockMap::Flat { size } => (rows * cols).div_ceil(size),
            BlockMap::Strided { count } => count,
            BlockMap::Rows => rows,
            BlockMap::Columns => cols,
            BlockMap::Groups { size } => rows * cols.div_ceil(size),
        }
    }
}

/// How codes are decoded to numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decoding {
    /// `table[code] * scale[block]`, in f32.
    Codebook {
        /// The codes.
        codes: Codes,
        /// `2^bits` values.
        table: Vec<f32>,
        /// The blocks.
        blocks: BlockMap,
        /// Scale of each block.
        scale: BlockValues,
    },
    /// `(code - zero[block]) * scale[block]`, in f32.
    Affine {
        /// The codes.
        codes: Codes,
        /// The blocks.
        blocks: BlockMap,
        /// Scale of each block.
        scale: BlockValues,
        /// Zero point of each block.
        zero: BlockValues,
    },
    /// What a source gives for each element, changed by steps in their order. Factors of columns,
    /// minima beside scales, codebooks of vectors and outliers are such.
    Steps {
        /// Where values come from.
        source: ValueSource,
        /// At most [`Format::MOST_STEPS`].
        steps: Vec<Step>,
    },
    /// No description covers it: the host calls the plugin's `decode`, and devices run its
    /// [`DeviceCode`].
    Callback,
}

/// The layout of one packed weight.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Format {
    /// Name of the component that made it.
    pub quantizer: String,
    /// `[N, M]`.
    pub shape: [u64; 2],
    /// Segments in the order in which they are stored, at most [`Format::MOST_SEGMENTS`].
    pub segments: Vec<SegmentSpec>,
    /// How the segments are decoded.
    pub decoding: Decoding,
}

impl Format {
    /// Most segments of a packed weight.
    pub const MOST_SEGMENTS: usize = 16;
    /// Most steps of a decoding.
    pub const MOST_STEPS: usize = 8;

    /// Bytes of all segments together, without alignment; `u64::MAX` where that overflows.
    pub fn bytes(&self) -> u64 {
        let bytes = self.segments.iter().map(SegmentSpec::bytes);
        bytes.fold(0, u64::saturating_add)
    }

    /// The numbers of blocks that the decoding reads: what they are, their blocks, and how they are
    /// stored.
    pub fn block_values(&self) -> Vec<(&'static str, BlockMap, &BlockValues)> {
        match &self.decoding {
            Decoding::Codebook { blocks, scale, .. } => vec![("scale", *blocks, scale)],
            Decoding::Affine {
                blocks,
                scale,
                zero,
                ..
            } => vec![("scale", *blocks, scale), ("zero", *blocks, zero)],
            Decoding::Steps { steps, .. } => steps.iter().filter_map(Step::numbers).collect(),
            Decoding::Callback => Vec::new(),
        }
    }

    /// Bytes of segment `segment` that stand for no number.
    pub fn not_numbers(&self, segment: usize) -> &[u8] {
        let values = self.block_values().into_iter();
        let mut parts = values.flat_map(|(.., values)| values.parts());
        let codes = parts.find_map(|values| match values {
            BlockValues::Table {
                codes, not_numbers, ..
            } if codes.segment == segment => Some(not_numbers.as_slice()),
            _ => None,
        });
        codes.unwrap_or_default()
    }
}
