//! The kit's formats of a source and steps.

use espalier_interface::DType;
use espalier_interface::format::{
    BitOrder, BlockMap, BlockValues, CodeRows, Codes, Decoding, Format, RowOrder, SegmentSpec,
    Step, ValueSource,
};

use super::super::{format, table};
use super::hadamard;
use crate::ops::draw::Draw;

/// 3 bits that straddle bytes, groups of 20 that do not cross rows, a factor for each column as AWQ
/// has, and two outliers in 16 elements.
pub fn factored(shape: [u64; 2]) -> Format {
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
pub fn vectors(shape: [u64; 2]) -> Format {
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
pub fn wide(shape: [u64; 2]) -> Format {
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
pub fn shared(shape: [u64; 2]) -> Format {
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

/// As GGUF's q4_K: super-blocks of 256 elements in 144 bytes, each a factor of scales and one of
/// minima in f16, 8 scales and 8 minima of 6 bits, and the codes.
pub fn interleaved(shape: [u64; 2]) -> Format {
    let supers = (shape[0] * shape[1]).div_ceil(256);
    let bytes = 144;
    let rows = |bits, codes, start| Codes {
        segment: 0,
        bits,
        order: BitOrder::Rows(CodeRows {
            codes,
            bytes,
            start,
            order: RowOrder::Stream,
        }),
    };
    let numbers = |codes, start| BlockValues::Product {
        values: Box::new(BlockValues::Table {
            codes,
            table: (0..64u8).map(f32::from).collect(),
            not_numbers: Vec::new(),
            scale: None,
        }),
        factors: Box::new(BlockValues::Interleaved {
            segment: 0,
            dtype: DType::F16,
            start,
            bytes,
        }),
        size: 8,
    };
    let blocks = BlockMap::Flat { size: 32 };
    let steps = vec![
        Step::Times {
            blocks,
            values: numbers(rows(6, 8, 4), 0),
        },
        Step::Minus {
            blocks,
            values: numbers(rows(6, 8, 10), 2),
        },
    ];
    let segments = vec![SegmentSpec::new("blocks", DType::U8, supers * bytes)];
    let source = ValueSource::Count {
        codes: rows(4, 256, 16),
    };
    format(shape, segments, Decoding::Steps { source, steps })
}
