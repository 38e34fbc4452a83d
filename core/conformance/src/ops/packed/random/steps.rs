//! A seed -> a format of a source and steps.

use espalier_interface::DType;
use espalier_interface::format::{Codes, Decoding, Format, SegmentSpec, Step, ValueSource};

use super::{STORED, blocks, codes, names, values};
use crate::ops::dice::Dice;
use crate::ops::draw::Draw;
use crate::ops::packed::{kit, table};

/// A format of weights of that shape, whose codes have so many bits, and its name.
pub fn format(draw: &Draw, dice: &Dice, shape: [u64; 2], bits: u32) -> (String, Format) {
    let elements = shape[0] * shape[1];
    let mut segments = Vec::new();
    let (kind, source) = source(draw, dice, (bits, elements), &mut segments);
    let mut steps: Vec<Step> = (0..dice.below(4))
        .map(|index| step(draw, dice, (index, shape), &mut segments))
        .collect();
    let rotation = kit::hadamard(shape[1]).filter(|_| dice.once_in(2));
    if let Some(rotation) = rotation {
        steps.insert(dice.between(0, steps.len()), rotation);
    }
    let kinds: Vec<&str> = steps
        .iter()
        .map(|step| match step {
            Step::Outliers { .. } => "outliers",
            Step::Hadamard { .. } => "Hadamard matrix",
            _ => step.numbers().map_or("", |(what, ..)| what),
        })
        .collect();
    let kinds = kinds.join(", ");
    let bits: Vec<String> = source
        .codes()
        .iter()
        .map(|codes| codes.bits.to_string())
        .collect();
    let bits = bits.join(" and ");
    let name = format!("{bits} bits, {kind}, [{kinds}], {}", names(&segments));
    let decoding = Decoding::Steps { source, steps };
    (name, super::super::format(shape, segments, decoding))
}

fn source(
    draw: &Draw,
    dice: &Dice,
    (bits, elements): (u32, u64),
    segments: &mut Vec<SegmentSpec>,
) -> (&'static str, ValueSource) {
    let mut layout = |name: &str, bits, count| {
        let (codes, words) = codes(dice, bits, count, true);
        let segment = segments.len();
        segments.push(SegmentSpec::new(name, codes.dtype(), words));
        Codes { segment, ..codes }
    };
    match dice.below(3) {
        0 => {
            let codes = layout("codes", bits, elements);
            let table = table(draw, 1 << bits);
            ("table", ValueSource::Table { codes, table })
        }
        1 => {
            let codes = layout("codes", bits, elements);
            ("count", ValueSource::Count { codes })
        }
        _ => {
            let len = dice.one_of(&[2, 4, 8, dice.between(2, 20) as u64]);
            let bits = [vector_bits(dice, bits, len), dice.between(1, 8) as u32];
            let all: Vec<Codes> = bits[..dice.between(1, 2)]
                .iter()
                .map(|&bits| layout("codes", bits, elements.div_ceil(len)))
                .collect();
            let sizes = all.iter().map(|codes| len << codes.bits);
            let has_room = sizes.clone().sum::<u64>() <= ValueSource::MOST_SHARED_VALUES;
            if has_room && dice.once_in(2) {
                let codebooks = sizes.map(|size| table(draw, size as usize)).collect();
                let source = ValueSource::SharedVectors {
                    codes: all,
                    codebooks,
                    len,
                };
                return ("vectors of the description", source);
            }
            let begin = segments.len();
            let mut add = |size| {
                segments.push(SegmentSpec::new("codebook", dice.one_of(&STORED), size));
                segments.len() - 1
            };
            let codebooks = if dice.once_in(2) {
                sizes.map(add).collect()
            } else {
                // One after the other.
                add(sizes.sum());
                vec![begin; all.len()]
            };
            let source = ValueSource::Vectors {
                codes: all,
                codebooks,
                len,
            };
            ("vectors", source)
        }
    }
}

/// Bits of the codes of vectors: once in three more than 8, as many as codebooks of a short test
/// have.
fn vector_bits(dice: &Dice, bits: u32, len: u64) -> u32 {
    let widest = if len <= 4 { 16 } else { 12 };
    match dice.below(3) {
        0 => dice.between(9, widest) as u32,
        _ => bits,
    }
}

fn step(
    draw: &Draw,
    dice: &Dice,
    (index, shape): (usize, [u64; 2]),
    segments: &mut Vec<SegmentSpec>,
) -> Step {
    let elements = shape[0] * shape[1];
    let kind = dice.below(4);
    if kind == 3 {
        let size = dice.one_of(&[16, 64, 256, dice.between(1, 256) as u64]);
        let count = dice.between(1, size.min(3) as usize) as u64;
        let entries = elements.div_ceil(size) * count;
        let positions = segments.len();
        segments.push(SegmentSpec::new("positions", DType::U8, entries));
        segments.push(SegmentSpec::new("outliers", dice.one_of(&STORED), entries));
        return Step::Outliers {
            size,
            count,
            positions,
            values: positions + 1,
        };
    }
    let blocks = blocks(dice, elements);
    let name = format!("step{index}");
    let values = values(draw, dice, (&name, blocks.count(shape)), segments);
    match kind {
        0 => Step::Times { blocks, values },
        1 => Step::Plus { blocks, values },
        _ => Step::Minus { blocks, values },
    }
}
