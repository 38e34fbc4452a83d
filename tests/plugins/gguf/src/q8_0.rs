//! Blocks of 32 elements in 34 bytes: a scale of f16, and a signed byte for each element.

use espalier_interface::format::{BlockMap, Step, ValueSource};
use espalier_interface::small_float::{f16_bits, f16_number};

use crate::Kind;

const ELEMENTS: usize = 32;
const BYTES: usize = 2 + ELEMENTS;

pub static KIND: Kind = Kind {
    name: "q8-0",
    elements: ELEMENTS,
    bytes: BYTES,
    decoding,
    encode,
};

fn decoding() -> (ValueSource, Vec<Step>) {
    let source = ValueSource::Table {
        codes: Kind::codes(BYTES, 8, ELEMENTS as u64, 2),
        table: (0..=u8::MAX).map(|code| f32::from(code as i8)).collect(),
    };
    let scale = Step::Times {
        blocks: BlockMap::Flat {
            size: ELEMENTS as u64,
        },
        values: Kind::number(BYTES, 0),
    };
    (source, vec![scale])
}

/// As `quantize_row_q8_0_ref` of `ggml-quants.c`.
fn encode(weight: &[f32], block: &mut [u8]) -> bool {
    let largest = weight.iter().fold(0.0f32, |most, x| most.max(x.abs()));
    let scale = largest / 127.0;
    let inverse = if scale > 0.0 { 1.0 / scale } else { 0.0 };
    let stored = f16_bits(scale);
    let (first, codes) = block.split_at_mut(2);
    first.copy_from_slice(&stored.to_le_bytes());
    for (x, code) in weight.iter().zip(codes) {
        *code = (x * inverse).round() as i8 as u8;
    }
    f16_number(stored).is_finite()
}
