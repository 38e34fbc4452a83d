//! A seed -> a format that describes its decoding: bits, order, blocks, and the values of blocks.

mod steps;

use espalier_interface::DType;
use espalier_interface::format::{
    BitOrder, BlockMap, BlockValues, CodeRows, Codes, Decoding, Format, RowOrder, SegmentSpec,
    TableScale,
};

use super::table;
use crate::ops::dice::Dice;
use crate::ops::draw::Draw;

/// Dtypes of the stored values of blocks.
const STORED: [DType; 3] = [DType::F32, DType::BF16, DType::F16];

/// A format of weights of that shape, and its name.
pub fn format(draw: &Draw, dice: &Dice, shape: [u64; 2]) -> (String, Format) {
    let elements = shape[0] * shape[1];
    let bits = dice.between(1, 8) as u32;
    if dice.once_in(3) {
        return steps::format(draw, dice, shape, bits);
    }
    let (codes, words) = codes(dice, bits, elements, true);
    let blocks = blocks(dice, elements);
    let count = blocks.count(shape);
    let mut segments = vec![SegmentSpec::new("codes", codes.dtype(), words)];
    let scale = values(draw, dice, ("scale", count), &mut segments);
    let (kind, decoding) = if dice.once_in(2) {
        let table = table(draw, 1 << bits);
        let decoding = Decoding::Codebook {
            codes,
            table,
            blocks,
            scale,
        };
        ("codebook", decoding)
    } else {
        let zero = values(draw, dice, ("zero", count), &mut segments);
        let decoding = Decoding::Affine {
            codes,
            blocks,
            scale,
            zero,
        };
        ("affine", decoding)
    };
    let name = format!("{bits} bits, {kind}, {blocks:?}, {}", names(&segments));
    (name, super::format(shape, segments, decoding))
}

/// Names and types of segments.
fn names(segments: &[SegmentSpec]) -> String {
    let names: Vec<String> = segments
        .iter()
        .map(|s| format!("{} {}", s.name, s.dtype))
        .collect();
    format!("[{}]", names.join(", "))
}

/// The codes of segment 0, and its number of words.
fn codes(dice: &Dice, bits: u32, elements: u64, can_be_split: bool) -> (Codes, u64) {
    // The words of 3 bits are of 32 where the codes are split.
    let word_bits = if bits == 3 { 32 } else { 8 };
    // At times more words than are needed.
    let split = elements.div_ceil((word_bits / u64::from(bits)).max(1)) + dice.below(3) as u64;
    let orders = [
        BitOrder::Split { words: split },
        BitOrder::Stream,
        BitOrder::Rows(rows(dice, bits)),
        BitOrder::HighFirst,
        BitOrder::LowFirst,
    ];
    let orders = match bits {
        3 => &orders[..3],
        _ => &orders,
    };
    let orders = &orders[if can_be_split && bits <= 8 { 0 } else { 1 }..];
    let codes = Codes {
        segment: 0,
        bits,
        order: dice.one_of(orders),
    };
    let words = codes.words(elements);
    (codes, words)
}

/// Rows of codes that begin at multiples of bytes, with more bytes than are needed.
fn rows(dice: &Dice, bits: u32) -> CodeRows {
    let order = match bits {
        3 => RowOrder::Stream,
        _ => dice.one_of(&[RowOrder::HighFirst, RowOrder::LowFirst, RowOrder::Stream]),
    };
    // Words of wide codes have two bytes.
    let unit = if bits > 8 { 2 } else { 1 };
    let codes = dice.one_of(&[1, 16, 64, dice.between(2, 100) as u64]);
    // A weight of many short rows with long gaps would be larger than a format may be.
    let most = if codes < 8 { 4 } else { 20 };
    let alignment = unit * dice.one_of(&[1, 2, 4, dice.between(1, most) as u64]);
    CodeRows {
        start: unit * dice.one_of(&[0, 0, 16, dice.below(9) as u64]),
        ..CodeRows::aligned(codes, bits, order, alignment)
    }
}

fn blocks(dice: &Dice, elements: u64) -> BlockMap {
    match dice.below(5) {
        0 => BlockMap::Rows,
        1 => BlockMap::Columns,
        3 => BlockMap::Groups { size: size(dice) },
        2 => BlockMap::Strided {
            count: elements.div_ceil(size(dice)),
        },
        _ => BlockMap::Flat { size: size(dice) },
    }
}

/// Elements of a block, most often a power of two.
fn size(dice: &Dice) -> u64 {
    match dice.below(4) {
        0 => dice.between(3, 200) as u64,
        _ => 1 << dice.between(3, 8),
    }
}

/// Adds a segment, and returns its index.
fn add(segments: &mut Vec<SegmentSpec>, name: [&str; 2], dtype: DType, len: u64) -> usize {
    segments.push(SegmentSpec::new(&name.concat(), dtype, len));
    segments.len() - 1
}

/// Values of `count` blocks in new segments named after `name`.
fn values(
    draw: &Draw,
    dice: &Dice,
    (name, count): (&str, u64),
    segments: &mut Vec<SegmentSpec>,
) -> BlockValues {
    let mut add = |suffix: &str, dtype, len| add(segments, [name, suffix], dtype, len);
    match dice.below(7) {
        0 => {
            let size = dice.one_of(&[256, dice.between(1, 300) as u64]);
            BlockValues::Nested {
                codes: add("", DType::U8, count),
                table: table(draw, 256),
                scales: add("_scale", DType::F32, count.div_ceil(size)),
                size,
                offset: add("_offset", DType::F32, 1),
            }
        }
        1 => {
            let size = dice.between(1, 200) as u64;
            let groups = dice.one_of(&[
                BlockMap::Rows,
                BlockMap::Flat { size },
                BlockMap::Strided {
                    count: count.div_ceil(size),
                },
            ]);
            let numbers = groups.count([1, count]);
            BlockValues::Affine {
                codes: add("", DType::U8, count),
                groups,
                scales: add("_scale", dice.one_of(&STORED), numbers),
                zeros: add("_zero", dice.one_of(&STORED), numbers),
            }
        }
        2 => {
            let size = dice.one_of(&[1, 8, dice.between(1, 40) as u64]);
            let group = format!("{name}_group");
            let values = factors(draw, dice, (name, count), segments);
            let factors = factors(draw, dice, (&group, count.div_ceil(size)), segments);
            BlockValues::Product {
                values: Box::new(values),
                factors: Box::new(factors),
                size,
            }
        }
        _ => factors(draw, dice, (name, count), segments),
    }
}

/// The same that can be factors of a product.
fn factors(
    draw: &Draw,
    dice: &Dice,
    (name, count): (&str, u64),
    segments: &mut Vec<SegmentSpec>,
) -> BlockValues {
    let mut add = |suffix: &str, dtype, len| add(segments, [name, suffix], dtype, len);
    match dice.below(3) {
        0 => BlockValues::Stored {
            segment: add("", dice.one_of(&STORED), count),
        },
        1 => {
            let dtype = dice.one_of(&STORED);
            let start = dice.one_of(&[0, dice.below(9) as u64]);
            let bytes = dtype.bytes() + dice.one_of(&[0, 16, dice.below(20) as u64]);
            BlockValues::Interleaved {
                segment: add("", DType::U8, start + count * bytes),
                dtype,
                start,
                bytes,
            }
        }
        _ => {
            let bits = dice.one_of(&[4, 8, dice.between(1, 8) as u32]);
            let (mut codes, words) = codes(dice, bits, count, false);
            codes.segment = add("", codes.dtype(), words);
            let scale = match dice.below(3) {
                0 => None,
                1 => Some(TableScale::Times {
                    segment: add("_scale", DType::F32, 1),
                }),
                _ => Some(TableScale::Over {
                    segment: add("_scale", DType::F32, 1),
                }),
            };
            BlockValues::Table {
                table: table(draw, 1 << bits),
                codes,
                not_numbers: Vec::new(),
                scale,
            }
        }
    }
}
