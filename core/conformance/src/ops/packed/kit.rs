//! The kit's own formats, which differ in bits, order, blocks and the values stored for a block.

use espalier_interface::DType;
use espalier_interface::format::{
    BitOrder, BlockMap, BlockValues, CodeRows, Codes, Decoding, Format, RowOrder, SegmentSpec,
    Step, TableScale, ValueSource,
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
            factored(shape),
        ),
        (
            "two codebooks of vectors, a Hadamard matrix, less a minimum",
            vectors(shape),
        ),
        (
            "vectors with codes of 12 bits, and of 5 in rows of their own",
            wide(shape),
        ),
        (
            "two codebooks of vectors in the description, a Hadamard matrix",
            shared(shape),
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

/// 3 bits that straddle bytes, groups of 20 that do not cross rows, a factor for each column as AWQ
/// has, and two outliers in 16 elements.
fn factored(shape: [u64; 2]) -> Format {
    let elements = shape[0] * shape[1];
    let codes = Codes {
        segment: 0,
        bits: 3,
        order: BitOrder::Stream,
    };
    let groups = BlockMap::Groups { size: 20 };
    let count = groups.count(shape);
    let entries = elements.div_ceil(16) * 2;
    let segments = vec![
        SegmentSpec::new("codes", DType::U8, codes.words(elements)),
        SegmentSpec::new("scale", DType::F16, count),
        SegmentSpec::new("zero", DType::BF16, count),
        SegmentSpec::new("factor", DType::F32, shape[1]),
        SegmentSpec::new("positions", DType::U8, entries),
        SegmentSpec::new("outliers", DType::BF16, entries),
    ];
    let stored = |segment| BlockValues::Stored { segment };
    let steps = vec![
        Step::Minus {
            blocks: groups,
            values: stored(2),
        },
        Step::Times {
            blocks: groups,
            values: stored(1),
        },
        Step::Times {
            blocks: BlockMap::Columns,
            values: stored(3),
        },
        Step::Outliers {
            size: 16,
            count: 2,
            positions: 4,
            values: 5,
        },
    ];
    let source = ValueSource::Count { codes };
    format(shape, segments, Decoding::Steps { source, steps })
}

/// As AQLM with two codebooks of vectors of 8, then a scale by row, a Hadamard matrix where rows
/// are even, and a minimum of 48 elements in 8 bits as those of GGUF's q4_K.
fn vectors(shape: [u64; 2]) -> Format {
    let len = 8;
    let each = (shape[0] * shape[1]).div_ceil(len);
    let codes = |segment, bits| Codes {
        segment,
        bits,
        order: BitOrder::LowFirst,
    };
    let blocks = BlockMap::Flat { size: 48 };
    let count = blocks.count(shape);
    let segments = vec![
        SegmentSpec::new("codes", DType::U8, each),
        SegmentSpec::new("residual_codes", DType::U8, codes(1, 4).words(each)),
        SegmentSpec::new("codebook", DType::F16, len << 8),
        SegmentSpec::new("residual_codebook", DType::F32, len << 4),
        SegmentSpec::new("scale", DType::F32, shape[0]),
        SegmentSpec::new("minimum", DType::U8, count),
        SegmentSpec::new("minimum_scale", DType::F32, count.div_ceil(8)),
        SegmentSpec::new("offset", DType::F32, 1),
    ];
    let source = ValueSource::Vectors {
        codes: vec![codes(0, 8), codes(1, 4)],
        codebooks: vec![2, 3],
        len,
    };
    let mut steps = vec![
        Step::Times {
            blocks: BlockMap::Rows,
            values: BlockValues::Stored { segment: 4 },
        },
        Step::Minus {
            blocks,
            values: BlockValues::Nested {
                codes: 5,
                table: table(&Draw::KIT, 256),
                scales: 6,
                size: 8,
                offset: 7,
            },
        },
    ];
    if let Some(rotation) = hadamard(shape[1]) {
        steps.insert(1, rotation);
    }
    format(shape, segments, Decoding::Steps { source, steps })
}

/// Vectors of 4 with codes of 12 bits in words of 16, plus those of codes of 5 bits in a stream, of
/// which each 20 begin at a multiple of 8 bytes.
fn wide(shape: [u64; 2]) -> Format {
    let len = 4;
    let each = (shape[0] * shape[1]).div_ceil(len);
    let wide = Codes {
        segment: 0,
        bits: 12,
        order: BitOrder::LowFirst,
    };
    let in_rows = Codes {
        segment: 1,
        bits: 5,
        order: BitOrder::Rows(CodeRows::aligned(20, 5, RowOrder::Stream, 8)),
    };
    let segments = vec![
        SegmentSpec::new("codes", wide.dtype(), wide.words(each)),
        SegmentSpec::new("residual_codes", DType::U8, in_rows.words(each)),
        SegmentSpec::new("codebook", DType::BF16, len << wide.bits),
        SegmentSpec::new("residual_codebook", DType::F32, len << in_rows.bits),
        SegmentSpec::new("scale", DType::F16, shape[0]),
    ];
    let source = ValueSource::Vectors {
        codes: vec![wide, in_rows],
        codebooks: vec![2, 3],
        len,
    };
    let scale = Step::Times {
        blocks: BlockMap::Rows,
        values: BlockValues::Stored { segment: 4 },
    };
    let steps = vec![scale];
    format(shape, segments, Decoding::Steps { source, steps })
}

/// As HIGGS: vectors of 2 with codes of 8 bits from a codebook of the description, plus those of 3
/// bits in a stream, a scale of groups of 32 and a Hadamard matrix where rows are even.
fn shared(shape: [u64; 2]) -> Format {
    let len = 2;
    let each = (shape[0] * shape[1]).div_ceil(len);
    let codes = |segment, bits, order| Codes {
        segment,
        bits,
        order,
    };
    let residual = codes(1, 3, BitOrder::Stream);
    let blocks = BlockMap::Groups { size: 32 };
    let segments = vec![
        SegmentSpec::new("codes", DType::U8, each),
        SegmentSpec::new("residual_codes", DType::U8, residual.words(each)),
        SegmentSpec::new("scale", DType::F16, blocks.count(shape)),
    ];
    let source = ValueSource::SharedVectors {
        codes: vec![codes(0, 8, BitOrder::LowFirst), residual],
        codebooks: [8, 3].map(|bits| table(&Draw::KIT, 2 << bits)).into(),
        len,
    };
    let scale = Step::Times {
        blocks,
        values: BlockValues::Stored { segment: 2 },
    };
    let steps = [scale].into_iter().chain(hadamard(shape[1])).collect();
    format(shape, segments, Decoding::Steps { source, steps })
}

/// The largest product with a Hadamard matrix that rows of `cols` elements have, where any.
pub fn hadamard(cols: u64) -> Option<Step> {
    let size = 1 << cols.trailing_zeros().min(6);
    (size > 1).then_some(Step::Hadamard { size })
}
