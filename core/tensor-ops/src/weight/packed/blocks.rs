//! The number of each block, as stored, and its way to the block's elements.

use espalier_interface::format::{BitOrder, BlockMap, BlockValues, Codes, TableScale};
use espalier_interface::{DType, Result};

use super::Run;
use super::codes::Source;
use crate::launch::Launch;
use crate::{Binary, Tensors};

/// A number for every block of a weight.
pub struct BlockNumbers {
    map: BlockMap,
    values: Values,
}

/// Codes of a byte each in a segment, which stand for `number` of them.
fn bytes(segment: usize, number: impl Fn(u8) -> f32) -> Source {
    let codes = Codes {
        segment,
        bits: 8,
        order: BitOrder::LowFirst,
    };
    Source::table(&codes, number)
}

/// Where numbers come from.
enum Values {
    Stored {
        segment: usize,
    },
    /// Codes that stand for numbers, then functions with the numbers of groups of blocks.
    Coded {
        source: Source,
        then: Vec<(Binary, BlockNumbers)>,
    },
}

impl BlockNumbers {
    /// The numbers `values` of blocks of `map`.
    pub fn new(map: BlockMap, values: &BlockValues) -> Self {
        let stored = |map, segment| BlockNumbers {
            map,
            values: Values::Stored { segment },
        };
        let values = match values {
            BlockValues::Stored { segment } => Values::Stored { segment: *segment },
            BlockValues::Nested {
                codes,
                table,
                scales,
                size,
                offset,
            } => Values::Coded {
                source: bytes(*codes, |code| table[usize::from(code)]),
                then: vec![
                    (Binary::Mul, stored(BlockMap::Flat { size: *size }, *scales)),
                    (Binary::Add, stored(BlockMap::Rows, *offset)),
                ],
            },
            BlockValues::Affine {
                codes,
                groups,
                scales,
                zeros,
            } => Values::Coded {
                source: bytes(*codes, f32::from),
                then: vec![
                    (Binary::Sub, stored(*groups, *zeros)),
                    (Binary::Mul, stored(*groups, *scales)),
                ],
            },
            BlockValues::Table {
                codes,
                table,
                scale,
                ..
            } => {
                let then = scale.map(|scale| {
                    let function = match scale {
                        TableScale::Times { .. } => Binary::Mul,
                        TableScale::Over { .. } => Binary::Div,
                    };
                    (function, stored(BlockMap::Rows, scale.segment()))
                });
                Values::Coded {
                    source: Source::table(codes, |code| table[usize::from(code)]),
                    then: then.into_iter().collect(),
                }
            }
        };
        BlockNumbers { map, values }
    }

    /// `function` of each value of a run, `[len]`, and the number of its block.
    pub fn applied<L: Tensors>(
        &self,
        launch: &Launch<'_, L>,
        first: usize,
        function: Binary,
        values: &L::Tensor,
        run: Run,
    ) -> Result<L::Tensor> {
        let library = launch.library;
        let numbers = |begin: usize, len: usize| self.numbers(launch, first, [begin, len]);
        let apply = |[rows, cols]: [usize; 2], numbers: &L::Tensor| {
            let values = library.reshape(values, &[rows, cols])?;
            let applied = library.binary(function, &values, numbers)?;
            library.reshape(&applied, &[rows * cols])
        };
        match self.map {
            BlockMap::Rows => {
                let (row, rows) = (run.begin / run.cols, run.len.div_ceil(run.cols));
                let numbers = library.reshape(&numbers(row, rows)?, &[rows, 1])?;
                apply([rows, run.len / rows], &numbers)
            }
            BlockMap::Columns => {
                let cols = run.cols.min(run.len);
                let numbers = numbers(run.begin % run.cols, cols)?;
                let numbers = library.reshape(&numbers, &[1, cols])?;
                apply([run.len / cols, cols], &numbers)
            }
            BlockMap::Flat { size } => {
                let (size, end) = (size as usize, run.begin + run.len);
                let (block, last) = (run.begin / size, end.div_ceil(size));
                let numbers = numbers(block, last - block)?;
                let numbers = library.reshape(&numbers, &[last - block, 1])?;
                if run.begin.is_multiple_of(size) && run.len.is_multiple_of(size) {
                    return apply([last - block, size], &numbers);
                }
                let spread = library.expand(&numbers, &[last - block, size])?;
                let spread = library.reshape(&spread, &[(last - block) * size])?;
                let spread = library.narrow(&spread, 0, run.begin - block * size, run.len)?;
                library.binary(function, values, &spread)
            }
            BlockMap::Groups { .. } => Err(espalier_interface::PluginError::unsupported(
                "the format has groups of a row: choose backend `cpu`",
            )),
            BlockMap::Strided { count } => {
                let count = count as usize;
                if run.begin.is_multiple_of(count) && run.len.is_multiple_of(count) {
                    let numbers = library.reshape(&numbers(0, count)?, &[1, count])?;
                    return apply([run.len / count, count], &numbers);
                }
                let (mut parts, mut at) = (Vec::new(), run.begin);
                while at < run.begin + run.len {
                    let len = (count - at % count).min(run.begin + run.len - at);
                    parts.push(numbers(at % count, len)?);
                    at += len;
                }
                library.binary(function, values, &library.concat(&parts, 0)?)
            }
        }
    }

    /// The numbers of `len` blocks from `begin` on, `[len]` of f32.
    fn numbers<L: Tensors>(
        &self,
        launch: &Launch<'_, L>,
        first: usize,
        [begin, len]: [usize; 2],
    ) -> Result<L::Tensor> {
        let library = launch.library;
        match &self.values {
            Values::Stored { segment } => {
                let segment = launch.param(first + segment);
                let part = launch.read(&segment.narrowed(0, begin, len))?;
                library.cast(&part, DType::F32)
            }
            Values::Coded { source, then } => {
                // Blocks are as a weight of one row.
                let run = Run {
                    begin,
                    len,
                    cols: usize::MAX,
                };
                let mut numbers = source.values(launch, first, run)?;
                for (function, groups) in then {
                    numbers = groups.applied(launch, first, *function, &numbers, run)?;
                }
                Ok(numbers)
            }
        }
    }
}
