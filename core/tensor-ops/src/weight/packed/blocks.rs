//! The number of each block, as stored, and its way to the block's elements.

use espalier_interface::format::{BitOrder, BlockMap, BlockValues, Codes, TableScale};
use espalier_interface::{DType, Result};

use super::Run;
use super::codes::CodeNumbers;
use super::interleaved::Interleaved;
use crate::launch::Launch;
use crate::{Binary, Tensors};

/// A number for every block of a weight.
pub struct BlockNumbers {
    map: BlockMap,
    values: Values,
}

/// Codes of a byte each in a segment.
fn bytes(segment: usize) -> Codes {
    Codes {
        segment,
        bits: 8,
        order: BitOrder::LowFirst,
    }
}

/// Where numbers come from.
enum Values {
    Stored {
        segment: usize,
    },
    Interleaved(Interleaved),
    /// Of each block, times that of its group.
    Product(Box<Values>, Box<BlockNumbers>),
    /// Codes that stand for numbers, then functions with the numbers of groups of blocks.
    Coded {
        codes: CodeNumbers,
        then: Vec<(Binary, BlockNumbers)>,
    },
}

impl BlockNumbers {
    /// The numbers `values` of blocks of `map`.
    pub fn new(map: BlockMap, values: &BlockValues) -> Self {
        let values = Values::new(values);
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
        let (numbers, shape) = self.of_elements(launch, first, run)?;
        let applied = library.binary(function, &library.reshape(values, &shape)?, &numbers)?;
        library.reshape(&applied, &[run.len])
    }

    /// The numbers of a run's elements, and the shape `[rows, cols]` of the elements for which they
    /// are repeated: `[rows, cols]`, `[rows, 1]` or `[1, cols]`.
    fn of_elements<L: Tensors>(
        &self,
        launch: &Launch<'_, L>,
        first: usize,
        run: Run,
    ) -> Result<(L::Tensor, [usize; 2])> {
        let library = launch.library;
        let numbers = |begin: usize, len: usize, shape: [usize; 2]| {
            library.reshape(&self.values.numbers(launch, first, [begin, len])?, &shape)
        };
        match self.map {
            BlockMap::Rows => {
                let [row, rows] = run.touched(run.cols);
                Ok((numbers(row, rows, [rows, 1])?, [rows, run.len / rows]))
            }
            BlockMap::Columns => {
                let cols = run.cols.min(run.len);
                let numbers = numbers(run.begin % run.cols, cols, [1, cols])?;
                Ok((numbers, [run.len / cols, cols]))
            }
            // Of one row they are flat blocks.
            BlockMap::Groups { size } if run.cols != usize::MAX => {
                let (size, [row, rows]) = (size as usize, run.touched(run.cols));
                let groups = run.cols.div_ceil(size);
                let numbers = numbers(row * groups, rows * groups, [rows * groups, 1])?;
                let spread = library.expand(&numbers, &[rows * groups, size])?;
                let spread = library.reshape(&spread, &[rows, groups * size])?;
                let spread = library.narrow(&spread, 1, 0, run.cols)?;
                Ok((spread, [rows, run.cols]))
            }
            BlockMap::Flat { size } | BlockMap::Groups { size } => {
                let size = size as usize;
                let [block, count] = run.touched(size);
                let numbers = numbers(block, count, [count, 1])?;
                if run.begin.is_multiple_of(size) && run.len.is_multiple_of(size) {
                    return Ok((numbers, [count, size]));
                }
                let spread = library.expand(&numbers, &[count, size])?;
                let spread = library.reshape(&spread, &[1, count * size])?;
                let spread = library.narrow(&spread, 1, run.begin - block * size, run.len)?;
                Ok((spread, [1, run.len]))
            }
            BlockMap::Strided { count } => {
                let count = count as usize;
                if run.begin.is_multiple_of(count) && run.len.is_multiple_of(count) {
                    return Ok((numbers(0, count, [1, count])?, [run.len / count, count]));
                }
                let (mut parts, mut at) = (Vec::new(), run.begin);
                while at < run.end() {
                    let len = (count - at % count).min(run.end() - at);
                    parts.push(numbers(at % count, len, [1, len])?);
                    at += len;
                }
                Ok((library.concat(&parts, 1)?, [1, run.len]))
            }
        }
    }
}

impl Values {
    fn new(values: &BlockValues) -> Self {
        let stored = |map, segment| BlockNumbers {
            map,
            values: Values::Stored { segment },
        };
        match values {
            BlockValues::Stored { segment } => Values::Stored { segment: *segment },
            BlockValues::Interleaved {
                segment,
                dtype,
                start,
                bytes,
            } => Values::Interleaved(Interleaved::new(*segment, *dtype, *start, *bytes)),
            BlockValues::Product {
                values,
                factors,
                size,
            } => {
                let groups = BlockMap::Flat { size: *size };
                let factors = BlockNumbers::new(groups, factors);
                Values::Product(Box::new(Values::new(values)), Box::new(factors))
            }
            BlockValues::Nested {
                codes,
                table,
                scales,
                size,
                offset,
            } => Values::Coded {
                codes: CodeNumbers::table(&bytes(*codes), table),
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
                codes: CodeNumbers::count(&bytes(*codes)),
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
                    codes: CodeNumbers::table(codes, table),
                    then: then.into_iter().collect(),
                }
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
        match self {
            Values::Stored { segment } => {
                let segment = launch.param(first + segment);
                let part = launch.read(&segment.narrowed(0, begin, len))?;
                library.cast(&part, DType::F32)
            }
            Values::Interleaved(interleaved) => interleaved.numbers(launch, first, [begin, len]),
            Values::Product(values, factors) => {
                let values = values.numbers(launch, first, [begin, len])?;
                factors.applied(
                    launch,
                    first,
                    Binary::Mul,
                    &values,
                    of_one_row([begin, len]),
                )
            }
            Values::Coded { codes, then } => {
                let run = of_one_row([begin, len]);
                let mut numbers = codes.values(launch, first, run)?;
                for (function, groups) in then {
                    numbers = groups.applied(launch, first, *function, &numbers, run)?;
                }
                Ok(numbers)
            }
        }
    }
}

/// Blocks as elements of a weight of one row.
fn of_one_row([begin, len]: [usize; 2]) -> Run {
    Run {
        begin,
        len,
        cols: usize::MAX,
    }
}
