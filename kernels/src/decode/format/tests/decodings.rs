//! Decodings of the tests' segments, of every kind.

use espalier_interface::DType;
use espalier_interface::format::{
    BitOrder, BlockMap, BlockValues, Codes, Decoding, Step, TableScale, ValueSource,
};

use crate::matmul::tests::numbers;

/// Decodings of those segments, of rows of `cols` elements: numbers stored plainly and nested in
/// each way, and steps.
pub fn decodings(codes: &Codes, blocks: BlockMap, cols: u64) -> Vec<Decoding> {
    let stored = |segment| BlockValues::Stored { segment };
    let nested = BlockValues::Nested {
        codes: 3,
        table: numbers(256, 9),
        scales: 4,
        size: 16,
        offset: 5,
    };
    let grouped = |groups| BlockValues::Affine {
        codes: 3,
        groups,
        scales: 6,
        zeros: 7,
    };
    let codebook = |scale| Decoding::Codebook {
        codes: codes.clone(),
        table: numbers(1 << codes.bits, 8),
        blocks,
        scale,
    };
    let affine = |scale, zero| Decoding::Affine {
        codes: codes.clone(),
        blocks,
        scale,
        zero,
    };
    let table = |bits, order, scale| BlockValues::Table {
        codes: Codes {
            segment: 3,
            bits,
            order,
        },
        table: numbers(1 << bits, 7),
        not_numbers: Vec::new(),
        scale,
    };
    let between = |dtype, start| BlockValues::Interleaved {
        segment: 12,
        dtype,
        start,
        bytes: 11,
    };
    let product = |values, factors| BlockValues::Product {
        values: Box::new(values),
        factors: Box::new(factors),
        size: 5,
    };
    let times = Some(TableScale::Times { segment: 5 });
    let over = Some(TableScale::Over { segment: 5 });
    vec![
        codebook(stored(1)),
        codebook(nested),
        codebook(table(8, BitOrder::LowFirst, None)),
        codebook(table(8, BitOrder::HighFirst, over)),
        affine(
            table(8, BitOrder::HighFirst, times),
            table(4, BitOrder::LowFirst, None),
        ),
        affine(stored(1), table(4, BitOrder::HighFirst, over)),
        affine(stored(1), stored(2)),
        affine(stored(1), grouped(BlockMap::Rows)),
        affine(
            grouped(BlockMap::Strided { count: 5 }),
            grouped(BlockMap::Flat { size: 9 }),
        ),
        codebook(product(
            table(6, BitOrder::Stream, None),
            between(DType::F16, 3),
        )),
        affine(
            between(DType::F32, 5),
            product(between(DType::F16, 3), stored(1)),
        ),
        after_table(codes, blocks),
        vectors(codes, blocks, cols),
        shared_vectors(codes, blocks),
    ]
}

/// A table with an addend, whose blocks have outliers.
fn after_table(codes: &Codes, blocks: BlockMap) -> Decoding {
    let source = ValueSource::Table {
        codes: codes.clone(),
        table: numbers(1 << codes.bits, 8),
    };
    let values = BlockValues::Stored { segment: 2 };
    let outliers = Step::Outliers {
        size: 40,
        count: 3,
        positions: 8,
        values: 9,
    };
    let steps = vec![Step::Plus { blocks, values }, outliers];
    Decoding::Steps { source, steps }
}

/// Vectors of three codebooks with a factor, times a Hadamard matrix where rows fit one, and less a
/// minimum.
pub fn vectors(codes: &Codes, blocks: BlockMap, cols: u64) -> Decoding {
    let source = ValueSource::Vectors {
        codes: vec![codes.clone(); 3],
        // The third follows the first in its segment.
        codebooks: vec![10, 11, 10],
        len: 7,
    };
    let values = |segment| BlockValues::Stored { segment };
    let mut steps = vec![
        Step::Times {
            blocks,
            values: values(1),
        },
        Step::Minus {
            blocks,
            values: values(2),
        },
    ];
    if cols.is_multiple_of(8) {
        steps.insert(1, Step::Hadamard { size: 8 });
    }
    Decoding::Steps { source, steps }
}

/// As [`vectors`] before its steps, of codebooks of the description, with a factor.
pub fn shared_vectors(codes: &Codes, blocks: BlockMap) -> Decoding {
    let source = ValueSource::SharedVectors {
        codes: vec![codes.clone(), codes.clone()],
        codebooks: [5, 6].map(|seed| numbers(7 << codes.bits, seed)).into(),
        len: 7,
    };
    let values = BlockValues::Stored { segment: 1 };
    let steps = vec![Step::Times { blocks, values }];
    Decoding::Steps { source, steps }
}
