//! A decoding of each source, and one with each step.

use espalier_interface::DType;
use espalier_interface::format::{
    BitOrder, BlockMap, BlockValues, CodeRows, Codes, Decoding, RowOrder, Step, ValueSource,
};

/// One decoding for each source of values, the first with every step.
pub fn decodings() -> Vec<Decoding> {
    let codes = |bits, order| Codes {
        segment: 0,
        bits,
        order,
    };
    let rows = BitOrder::Rows(CodeRows {
        codes: 3,
        bytes: 4,
        start: 1,
        order: RowOrder::LowFirst,
    });
    let vectors = vec![codes(1, BitOrder::Stream)];
    let sources = [
        ValueSource::Count {
            codes: codes(4, rows),
        },
        ValueSource::Table {
            codes: codes(4, BitOrder::LowFirst),
            table: vec![0.5],
        },
        ValueSource::Vectors {
            codes: vectors.clone(),
            codebooks: vec![1],
            len: 2,
        },
        ValueSource::SharedVectors {
            codes: vectors,
            codebooks: vec![vec![0.5]],
            len: 2,
        },
    ];
    let steps = sources.iter().map(|source| match source {
        ValueSource::Count { .. } => steps(),
        _ => Vec::new(),
    });
    let steps: Vec<Vec<Step>> = steps.collect();
    let of = |(source, steps)| Decoding::Steps { source, steps };
    sources.into_iter().zip(steps).map(of).collect()
}

fn steps() -> Vec<Step> {
    let blocks = BlockMap::Groups { size: 2 };
    let values = || BlockValues::Stored { segment: 1 };
    let between = BlockValues::Interleaved {
        segment: 1,
        dtype: DType::F16,
        start: 2,
        bytes: 4,
    };
    let product = BlockValues::Product {
        values: Box::new(values()),
        factors: Box::new(values()),
        size: 2,
    };
    vec![
        Step::Times {
            blocks,
            values: between,
        },
        Step::Plus {
            blocks,
            values: product,
        },
        Step::Minus {
            blocks,
            values: values(),
        },
        Step::Outliers {
            size: 2,
            count: 1,
            positions: 2,
            values: 3,
        },
        Step::Hadamard { size: 2 },
    ]
}
