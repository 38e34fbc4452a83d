//! A decoding as a source of values and steps that change them: what every description amounts to.

use serde::{Deserialize, Serialize};

use super::{BlockMap, BlockValues, Codes, Decoding, Format};

/// Where the values of elements come from, before any step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ValueSource {
    /// `table[code]`.
    Table {
        /// The codes.
        codes: Codes,
        /// `2^bits` values.
        table: Vec<f32>,
    },
    /// The code as a number.
    Count {
        /// The codes.
        codes: Codes,
    },
    /// Vectors of `len` elements that follow each other in flat order. Element `i` has vector
    /// `v = i / len` and lane `i % len`; its value is the sum over `k`, from the first on and each
    /// rounded to f32, of `codebooks[k][code_k[v] * len + lane]`. With several codebooks each
    /// after the first holds residuals (AQLM's additive codes; VPTQ's residual stages).
    Vectors {
        /// The codes of each codebook, one per vector, of at most 16 bits: at most
        /// [`Format::MOST_SEGMENTS`].
        codes: Vec<Codes>,
        /// Indices of the segments of the codebooks: each of `2^bits` vectors, `[2^bits, len]`,
        /// in f32, bf16 or f16. A segment that is named several times has so many codebooks, one
        /// after the other (the tensor `codebooks` of AQLM's 2x8).
        codebooks: Vec<usize>,
        /// Elements of a vector, 2 to [`ValueSource::LONGEST_VECTOR`].
        len: u64,
    },
    /// As `Vectors`, of codebooks that the description has in place of each weight's segments. All
    /// weights of the quantizer share them, such as the grids of HIGGS.
    SharedVectors {
        /// The codes of each codebook, one per vector: at most [`Format::MOST_SEGMENTS`].
        codes: Vec<Codes>,
        /// The codebooks: each of `2^bits` vectors, `[2^bits, len]`. Together they have at most
        /// [`ValueSource::MOST_SHARED_VALUES`].
        codebooks: Vec<Vec<f32>>,
        /// Elements of a vector, 2 to [`ValueSource::LONGEST_VECTOR`].
        len: u64,
    },
}

impl ValueSource {
    /// Most elements of a vector.
    pub const LONGEST_VECTOR: u64 = 64;
    /// Most values in the codebooks of a description, 32 KiB of f32. A description goes with each
    /// weight, as text where it crosses the boundary; and a card has room for all values beside the
    /// tables of eight steps in the 48 KiB of shared memory that a block of threads has everywhere.
    pub const MOST_SHARED_VALUES: u64 = 1 << 13;

    /// The codes that it reads.
    pub fn codes(&self) -> &[Codes] {
        match self {
            ValueSource::Table { codes, .. } | ValueSource::Count { codes } => {
                std::slice::from_ref(codes)
            }
            ValueSource::Vectors { codes, .. } | ValueSource::SharedVectors { codes, .. } => codes,
        }
    }

    fn codes_mut(&mut self) -> &mut [Codes] {
        match self {
            ValueSource::Table { codes, .. } | ValueSource::Count { codes } => {
                std::slice::from_mut(codes)
            }
            ValueSource::Vectors { codes, .. } | ValueSource::SharedVectors { codes, .. } => codes,
        }
    }
}

/// A change of each value, in f32, rounded once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// `value * number[block]`.
    Times {
        /// The blocks.
        blocks: BlockMap,
        /// The number of each block.
        values: BlockValues,
    },
    /// `value + number[block]`.
    Plus {
        /// The blocks.
        blocks: BlockMap,
        /// The number of each block.
        values: BlockValues,
    },
    /// `value - number[block]`.
    Minus {
        /// The blocks.
        blocks: BlockMap,
        /// The number of each block.
        values: BlockValues,
    },
    /// Some elements of each block have values of their own. Entry `k` of block `b` has index
    /// `b count + k` in both segments; it replaces element `b size + position`. The last of
    /// several entries of an element holds. A position outside of its block, or of the weight,
    /// replaces nothing.
    Outliers {
        /// Elements per block, consecutive in flat order, 1 to [`Step::LARGEST_OUTLIER_BLOCK`].
        size: u64,
        /// Entries per block, 1 to `size`.
        count: u64,
        /// Index of the segment of positions within the block, of u8.
        positions: usize,
        /// Index of the segment of values (f32, bf16 or f16).
        values: usize,
    },
    /// Each run of `size` consecutive elements of a row is multiplied by a Hadamard matrix, as
    /// [`hadamard`] does. Signs and the factor `1 / sqrt(size)` of a rotation are factors of
    /// columns or blocks.
    Hadamard {
        /// Elements of a run: a power of two, 2 to [`Step::LARGEST_HADAMARD`], of which the row's
        /// length is a multiple.
        size: u64,
    },
}

/// Multiplies a run of values by Sylvester's Hadamard matrix of its length, which has entries of 1
/// and -1: for distances of 1, 2, 4 and so on, each pair `(a, b)` at that distance becomes
/// `(a + b, a - b)`. Each sum is rounded to f32. Applied twice it gives the values times their
/// number.
///
/// # Panics
/// Where the length is no power of two.
pub fn hadamard(run: &mut [f32]) {
    assert!(run.len().is_power_of_two(), "{} values", run.len());
    let mut distance = 1;
    while distance < run.len() {
        for pairs in run.chunks_exact_mut(2 * distance) {
            let (low, high) = pairs.split_at_mut(distance);
            for (low, high) in low.iter_mut().zip(high) {
                (*low, *high) = (*low + *high, *low - *high);
            }
        }
        distance *= 2;
    }
}

impl Step {
    /// Most elements of a run that is multiplied by a Hadamard matrix.
    pub const LARGEST_HADAMARD: u64 = 512;
    /// Most elements of a block with outliers: positions are of a byte.
    pub const LARGEST_OUTLIER_BLOCK: u64 = 256;

    /// The numbers of blocks that it reads: what they are, their blocks, and how they are stored.
    pub fn numbers(&self) -> Option<(&'static str, BlockMap, &BlockValues)> {
        match self {
            Step::Times { blocks, values } => Some(("factor", *blocks, values)),
            Step::Plus { blocks, values } => Some(("addend", *blocks, values)),
            Step::Minus { blocks, values } => Some(("subtrahend", *blocks, values)),
            Step::Outliers { .. } | Step::Hadamard { .. } => None,
        }
    }

    fn blocks_mut(&mut self) -> Option<&mut BlockMap> {
        match self {
            Step::Times { blocks, .. } | Step::Plus { blocks, .. } | Step::Minus { blocks, .. } => {
                Some(blocks)
            }
            Step::Outliers { .. } | Step::Hadamard { .. } => None,
        }
    }
}

impl Format {
    /// The decoding as a source and steps, whichever way it is described: a codebook is a table
    /// times its scale, an affine one the code less its zero point, times its scale. Layouts that
    /// two descriptions share have one: a stream of 1, 2, 4 or 8 bits is in the order `LowFirst`,
    /// rows of codes without bytes between them are none, and groups that fill their rows are
    /// `Flat`. `None` for [`Decoding::Callback`].
    pub fn stages(&self) -> Option<(ValueSource, Vec<Step>)> {
        let (mut source, mut steps) = match &self.decoding {
            Decoding::Codebook {
                codes,
                table,
                blocks,
                scale,
            } => {
                let (codes, table) = (codes.clone(), table.clone());
                let (blocks, values) = (*blocks, scale.clone());
                let scale = Step::Times { blocks, values };
                (ValueSource::Table { codes, table }, vec![scale])
            }
            Decoding::Affine {
                codes,
                blocks,
                scale,
                zero,
            } => {
                let (codes, blocks) = (codes.clone(), *blocks);
                let (scale, zero) = (scale.clone(), zero.clone());
                let zero = Step::Minus {
                    blocks,
                    values: zero,
                };
                let scale = Step::Times {
                    blocks,
                    values: scale,
                };
                (ValueSource::Count { codes }, vec![zero, scale])
            }
            Decoding::Steps { source, steps } => (source.clone(), steps.clone()),
            Decoding::Callback => return None,
        };
        source.codes_mut().iter_mut().for_each(Codes::simplify);
        let blocks = steps.iter_mut().filter_map(Step::blocks_mut);
        blocks.for_each(|blocks| blocks.simplify(self.shape[1]));
        Some((source, steps))
    }
}
