//! Super-blocks of 256 elements in 144 bytes: a factor of scales and one of minima in f16, a scale
//! and a minimum of 6 bits for each 32 elements, and codes of 4 bits. An element is
//! `d sc code - dmin m`. GGUF has the same bytes with the bits of scales, minima and codes in
//! another order.

use espalier_interface::format::{BitOrder, BlockMap, BlockValues, Codes, Step, ValueSource};
use espalier_interface::small_float::{f16_bits, f16_number};

use crate::Kind;

const ELEMENTS: usize = 256;
/// Elements that share a scale and a minimum.
const BLOCK: usize = 32;
const BLOCKS: usize = ELEMENTS / BLOCK;

/// Bytes at which the factors, the scales, the minima and the codes begin.
const SCALE_FACTOR: usize = 0;
const MINIMUM_FACTOR: usize = 2;
const SCALES: usize = 4;
const MINIMA: usize = 10;
const CODES: usize = 16;
const BYTES: usize = CODES + ELEMENTS / 2;

/// The largest scale and minimum of 6 bits, and the largest code.
const LARGEST_NUMBER: f32 = 63.0;
const LARGEST_CODE: f32 = 15.0;

pub static KIND: Kind = Kind {
    name: "q4-k",
    elements: ELEMENTS,
    bytes: BYTES,
    decoding,
    encode,
};

fn decoding() -> (ValueSource, Vec<Step>) {
    let numbers = |start: usize, factors: usize| BlockValues::Product {
        values: Box::new(BlockValues::Table {
            codes: Kind::codes(BYTES, 6, BLOCKS as u64, start as u64),
            table: (0..64u8).map(f32::from).collect(),
            not_numbers: Vec::new(),
            scale: None,
        }),
        factors: Box::new(Kind::number(BYTES, factors as u64)),
        size: BLOCKS as u64,
    };
    let blocks = BlockMap::Flat { size: BLOCK as u64 };
    let scale = Step::Times {
        blocks,
        values: numbers(SCALES, SCALE_FACTOR),
    };
    let minimum = Step::Minus {
        blocks,
        values: numbers(MINIMA, MINIMUM_FACTOR),
    };
    let codes = Kind::codes(BYTES, 4, ELEMENTS as u64, CODES as u64);
    (ValueSource::Count { codes }, vec![scale, minimum])
}

/// The least and the largest of a block's elements, and zero between them.
fn range(block: &[f32]) -> (f32, f32) {
    let fold = |(low, high): (f32, f32), &x: &f32| (low.min(x), high.max(x));
    block.iter().fold((0.0, 0.0), fold)
}

/// The factor, rounded to f16, that brings the largest number to 63, and all numbers in such units.
fn numbers(of: &[f32; BLOCKS]) -> (f32, [u8; BLOCKS]) {
    let largest = of.iter().fold(0.0f32, |most, &x| most.max(x));
    let factor = f16_number(f16_bits(largest / LARGEST_NUMBER));
    let number = |x: f32| quotient(x, factor, LARGEST_NUMBER);
    (factor, of.map(number))
}

/// How often `unit` is in `x`, from 0 to `most`.
fn quotient(x: f32, unit: f32, most: f32) -> u8 {
    if unit > 0.0 {
        (x / unit).round().clamp(0.0, most) as u8
    } else {
        0
    }
}

/// Writes codes as the block's bits have them.
fn put(block: &mut [u8], bits: u32, codes: &[u8]) {
    let stream = Codes {
        segment: 0,
        bits,
        order: BitOrder::Stream,
    };
    stream.pack(codes, block);
}

fn encode(weight: &[f32], block: &mut [u8]) -> bool {
    let (mut scales, mut minima) = ([0.0; BLOCKS], [0.0; BLOCKS]);
    for (of, (scale, minimum)) in weight.chunks(BLOCK).zip(scales.iter_mut().zip(&mut minima)) {
        let (low, high) = range(of);
        (*scale, *minimum) = (high / LARGEST_CODE - low / LARGEST_CODE, -low);
    }
    let (scale_factor, scales) = numbers(&scales);
    let (minimum_factor, minima) = numbers(&minima);
    if !(scale_factor.is_finite() && minimum_factor.is_finite()) {
        return false;
    }
    let codes: Vec<u8> = weight
        .iter()
        .enumerate()
        .map(|(at, x)| {
            let unit = scale_factor * f32::from(scales[at / BLOCK]);
            let minimum = minimum_factor * f32::from(minima[at / BLOCK]);
            quotient(x + minimum, unit, LARGEST_CODE)
        })
        .collect();
    for (start, factor) in [
        (SCALE_FACTOR, scale_factor),
        (MINIMUM_FACTOR, minimum_factor),
    ] {
        block[start..start + 2].copy_from_slice(&f16_bits(factor).to_le_bytes());
    }
    put(&mut block[SCALES..MINIMA], 6, &scales);
    put(&mut block[MINIMA..CODES], 6, &minima);
    put(&mut block[CODES..], 4, &codes);
    true
}
