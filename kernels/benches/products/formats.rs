//! The shape of a weight -> a packed format of it, and its bytes.

use espalier_interface::DType;
use espalier_interface::format::{
    BitOrder, BlockMap, BlockValues, Codes, Decoding, Format, SegmentSpec,
};

use crate::numbers::numbers;

/// An NF4-like format, blocks of 64, double quantization, and its bytes.
pub fn four_bit(rows: usize, cols: usize) -> (Format, Vec<Vec<u8>>) {
    let (elements, blocks) = (rows * cols, rows * cols / 64);
    let spec = |name, dtype, len: usize| SegmentSpec::new(name, dtype, len as u64);
    let segments = vec![
        spec("codes", DType::U8, elements / 2),
        spec("nested", DType::U8, blocks),
        spec("scales", DType::F32, blocks.div_ceil(256)),
        spec("offset", DType::F32, 1),
    ];
    let bytes = |spec: &SegmentSpec| match spec.dtype {
        DType::U8 => (0..spec.len).map(|i| (i * 37 % 251) as u8).collect(),
        _ => (0..spec.len).flat_map(|_| 0.02f32.to_le_bytes()).collect(),
    };
    let data = segments.iter().map(bytes).collect();
    let scale = BlockValues::Nested {
        codes: 1,
        table: numbers(256),
        scales: 2,
        size: 256,
        offset: 3,
    };
    let codes = Codes {
        segment: 0,
        bits: 4,
        order: BitOrder::HighFirst,
    };
    let decoding = Decoding::Codebook {
        codes,
        table: numbers(16),
        blocks: BlockMap::Flat { size: 64 },
        scale,
    };
    let format = Format {
        quantizer: "bench".to_owned(),
        shape: [rows as u64, cols as u64],
        segments,
        decoding,
    };
    (format, data)
}

/// An HQQ-like format, groups of 64 with f32 scales and zeros, and its bytes.
pub fn hqq(bits: u32, axis: usize, rows: usize, cols: usize) -> (Format, Vec<Vec<u8>>) {
    let (elements, groups) = (rows * cols, rows * cols / 64);
    let (lines, width) = match axis {
        0 => (64, groups),
        _ => (groups, 64),
    };
    let mut codes = Codes {
        segment: 0,
        bits,
        order: BitOrder::Split { words: 1 },
    };
    let words = (lines as u64).div_ceil(codes.per_word()) * width as u64;
    codes.order = BitOrder::Split { words };
    let numbers: Vec<u8> = (0..groups)
        .flat_map(|group| (0.01 + group as f32 * 1e-6).to_le_bytes())
        .collect();
    let packed: Vec<u8> = (0..words * codes.dtype().bytes())
        .map(|i| (i * 37 % 251) as u8 & 0x3f)
        .collect();
    let segments = vec![
        SegmentSpec::new("codes", codes.dtype(), words),
        SegmentSpec::new("scale", DType::F32, groups as u64),
        SegmentSpec::new("zero", DType::F32, groups as u64),
    ];
    let blocks = match axis {
        0 => BlockMap::Strided {
            count: groups as u64,
        },
        _ => BlockMap::Flat { size: 64 },
    };
    assert!(
        codes.words(elements as u64) == words,
        "the bench's own format"
    );
    let decoding = Decoding::Affine {
        codes,
        blocks,
        scale: BlockValues::Stored { segment: 1 },
        zero: BlockValues::Stored { segment: 2 },
    };
    let format = Format {
        quantizer: "bench".to_owned(),
        shape: [rows as u64, cols as u64],
        segments,
        decoding,
    };
    (format, vec![packed, numbers.clone(), numbers])
}
