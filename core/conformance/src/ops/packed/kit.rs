//! The kit's own formats, which differ in bits, order, blocks and the values stored for a block.

mod steps;

use espalier_interface::DType;
use espalier_interface::format::{
    BitOrder, BlockMap, BlockValues, Codes, Decoding, Format, SegmentSpec, Step, TableScale,
};

use super::{Packed, called, described, format, table};
use crate::ops::draw::Draw;

/// A weight in each of the kit's formats.
pub fn all(shape: [u64; 2]) -> Vec<Packed> {
    let draw = &Draw::KIT;
    let formats = [
        ("4 bits, codebook, nested scales", nested(shape)),
        ("2 bits, affine, scales by row", by_row(shape)),
        (
            "3 bits, affine, strided blocks, affine zeros",
            strided(shape),
        ),
        ("8 bits, codebook, bf16 scales", eight_bits(shape)),
        (
            "4 bits, codebook, scales with a table over one number",
            coded_scales(shape),
        ),
        (
            "4 bits, affine, zeros of 4 bits with a table",
            coded_zeros(shape),
        ),
        (
            "3 bits in a stream, groups of rows, factors of columns, outliers",
            steps::factored(shape),
        ),
        (
            "two codebooks of vectors, a Hadamard matrix, less a minimum",
            steps::vectors(shape),
        ),
        (
            "vectors with codes of 12 bits, and of 5 in rows of their own",
            steps::wide(shape),
        ),
        (
            "two codebooks of vectors in the description, a Hadamard matrix",
            steps::shared(shape),
        ),
        (
            "4 bits with scales and minima of 6 bits and their factors between them",
            steps::interleaved(shape),
        ),
    ];
    let formats = formats.map(|(name, format)| described(draw, (name.to_owned(), format)));
    let mut all = Vec::from(formats);
    all.push(called(draw, shape));
    all
}

/// As NF4 with double quantization: 4 bits, blocks of 64 elements across rows, 8-bit scales.
fn nested(shape: [u64; 2]) -> Format {
    let blocks = BlockMap::Flat { size: 64 };
    let count = blocks.count(shape);
    let codes = Codes {
        segment: 0,
        bits: 4,
        order: BitOrder::HighFirst,
    };
    let words = codes.words(shape[0] * shape[1]);
    let segments = vec![
        SegmentSpec::new("codes", DType::U8, words),
        SegmentSpec::new("absmax", DType::U8, count),
        SegmentSpec::new("nested_absmax", DType::F32, count.div_ceil(256)),
        SegmentSpec::new("offset", DType::F32, 1),
    ];
    let scale = BlockValues::Nested {
        codes: 1,
        table: table(&Draw::KIT, 256),
        scales: 2,
        size: 256,
        offset: 3,
    };
    let table = table(&Draw::KIT, 16);
    let decoding = Decoding::Codebook {
        codes,
        table,
        blocks,
        scale,
    };
    format(shape, segments, decoding)
}

/// 2 bits, the first code in the lowest bits, a scale and a zero for each row.
fn by_row(shape: [u64; 2]) -> Format {
    let codes = Codes {
        segment: 0,
        bits: 2,
        order: BitOrder::LowFirst,
    };
    let words = codes.words(shape[0] * shape[1]);
    let segments = vec![
        SegmentSpec::new("codes", DType::U8, words),
        SegmentSpec::new("scale", DType::F16, shape[0]),
        SegmentSpec::new("zero", DType::F32, shape[0]),
    ];
    let decoding = Decoding::Affine {
        codes,
        blocks: BlockMap::Rows,
        scale: BlockValues::Stored { segment: 1 },
        zero: BlockValues::Stored { segment: 2 },
    };
    format(shape, segments, decoding)
}

/// As HQQ on axis 0: 3 bits in words of 32, strided blocks, zeros quantized again in one group.
fn strided(shape: [u64; 2]) -> Format {
    let elements = shape[0] * shape[1];
    let count = elements.div_ceil(64);
    let words = elements.div_ceil(10);
    let codes = Codes {
        segment: 0,
        bits: 3,
        order: BitOrder::Split { words },
    };
    let segments = vec![
        SegmentSpec::new("codes", DType::I32, words),
        SegmentSpec::new("scale", DType::F32, count),
        SegmentSpec::new("zero", DType::U8, count),
        SegmentSpec::new("zero_scale", DType::F32, 1),
        SegmentSpec::new("zero_zero", DType::F32, 1),
    ];
    let zero = BlockValues::Affine {
        codes: 2,
        groups: BlockMap::Rows,
        scales: 3,
        zeros: 4,
    };
    let decoding = Decoding::Affine {
        codes,
        blocks: BlockMap::Strided { count },
        scale: BlockValues::Stored { segment: 1 },
        zero,
    };
    format(shape, segments, decoding)
}

/// 8 bits, a scale for each column.
fn eight_bits(shape: [u64; 2]) -> Format {
    let codes = Codes {
        segment: 0,
        bits: 8,
        order: BitOrder::HighFirst,
    };
    let segments = vec![
        SegmentSpec::new("codes", DType::U8, shape[0] * shape[1]),
        SegmentSpec::new("scale", DType::BF16, shape[1]),
    ];
    let decoding = Decoding::Codebook {
        codes,
        table: table(&Draw::KIT, 256),
        blocks: BlockMap::Columns,
        scale: BlockValues::Stored { segment: 1 },
    };
    format(shape, segments, decoding)
}

/// As NVFP4: 4 bits, blocks of 16, a scale of 8 bits by a table over one number of the weight.
fn coded_scales(shape: [u64; 2]) -> Format {
    let blocks = BlockMap::Flat { size: 16 };
    let codes = |segment, bits| Codes {
        segment,
        bits,
        order: BitOrder::LowFirst,
    };
    let words = codes(0, 4).words(shape[0] * shape[1]);
    let segments = vec![
        SegmentSpec::new("codes", DType::U8, words),
        SegmentSpec::new("scale", DType::U8, blocks.count(shape)),
        SegmentSpec::new("global_scale", DType::F32, 1),
    ];
    let scale = BlockValues::Table {
        codes: codes(1, 8),
        table: table(&Draw::KIT, 256),
        not_numbers: Vec::new(),
        scale: Some(TableScale::Over { segment: 2 }),
    };
    let decoding = Decoding::Codebook {
        codes: codes(0, 4),
        table: table(&Draw::KIT, 16),
        blocks,
        scale,
    };
    format(shape, segments, decoding)
}

/// 4 bits, a scale of f32 and a zero point of 4 bits for each row.
fn coded_zeros(shape: [u64; 2]) -> Format {
    let blocks = BlockMap::Rows;
    let count = blocks.count(shape);
    let codes = |segment| Codes {
        segment,
        bits: 4,
        order: BitOrder::LowFirst,
    };
    let segments = vec![
        SegmentSpec::new("codes", DType::U8, codes(0).words(shape[0] * shape[1])),
        SegmentSpec::new("scale", DType::F32, count),
        SegmentSpec::new("zero", DType::U8, codes(2).words(count)),
    ];
    let decoding = Decoding::Affine {
        codes: codes(0),
        blocks,
        scale: BlockValues::Stored { segment: 1 },
        zero: BlockValues::Table {
            codes: codes(2),
            table: table(&Draw::KIT, 16),
            not_numbers: Vec::new(),
            scale: None,
        },
    };
    format(shape, segments, decoding)
}

/// The largest product with a Hadamard matrix that rows of `cols` elements have, where any.
pub fn hadamard(cols: u64) -> Option<Step> {
    let size = 1 << cols.trailing_zeros().min(6);
    (size > 1).then_some(Step::Hadamard { size })
}
