//! Numbers between codes and products of numbers, with values that are written out.

use super::*;

/// A weight `[2, 8]` in records of 4 elements and 7 bytes: 2 bytes of codes, 1 that is not read, a
/// scale of f16, and a minimum of 6 bits in the low bits of 2 bytes. Two records share a factor of
/// minima.
fn between() -> Format {
    let rows = |bits, codes, start| Codes {
        segment: 0,
        bits,
        order: BitOrder::Rows(CodeRows {
            codes,
            bytes: 7,
            start,
            order: RowOrder::LowFirst,
        }),
    };
    let scale = BlockValues::Interleaved {
        segment: 0,
        dtype: DType::F16,
        start: 3,
        bytes: 7,
    };
    let minimum = BlockValues::Product {
        values: Box::new(BlockValues::Table {
            codes: rows(6, 1, 5),
            table: (0..64u8).map(f32::from).collect(),
            not_numbers: Vec::new(),
            scale: None,
        }),
        factors: Box::new(BlockValues::Stored { segment: 1 }),
        size: 2,
    };
    let blocks = BlockMap::Flat { size: 4 };
    Format {
        quantizer: "test".into(),
        shape: [2, 8],
        segments: vec![
            SegmentSpec::new("blocks", DType::U8, 4 * 7),
            SegmentSpec::new("factors", DType::F32, 2),
        ],
        decoding: Decoding::Steps {
            source: ValueSource::Count {
                codes: rows(4, 4, 0),
            },
            steps: vec![
                Step::Times {
                    blocks,
                    values: scale,
                },
                Step::Minus {
                    blocks,
                    values: minimum,
                },
            ],
        },
    }
}

#[test]
fn numbers_between_codes_have_the_values_that_are_written_out() {
    let format = between();
    format.validate().expect("it fits");
    let (scales, minima, factors) = ([0.5f32, -2.0, 1.0, 8.0], [3u8, 63, 0, 1], [0.25f32, -1.0]);
    let mut blocks = Vec::new();
    for (scale, minimum) in scales.into_iter().zip(minima) {
        blocks.extend([0x10, 0xf2, 0xa5]);
        blocks.extend(half::f16::from_f32(scale).to_le_bytes());
        blocks.extend([minimum | 0x80, 0xa5]);
    }
    let factors_bytes: Vec<u8> = factors.iter().flat_map(|x| x.to_le_bytes()).collect();
    let segments: [&[u8]; 2] = [&blocks, &factors_bytes];
    let mut found = [0.0; 16];
    format
        .decode(&segments, 0..2, 0..8, &mut found)
        .expect("described");
    for (i, found) in found.into_iter().enumerate() {
        let (block, code) = (i / 4, [0.0f32, 1.0, 2.0, 15.0][i % 4]);
        let minimum = f32::from(minima[block]) * factors[block / 2];
        assert_eq!(found, code * scales[block] - minimum, "element {i}");
    }
}

#[test]
fn numbers_between_codes_that_do_not_fit_are_refused_by_name() {
    let refused = |index: usize, change: fn(&mut BlockValues), expected: &str| {
        let mut format = between();
        let Decoding::Steps { steps, .. } = &mut format.decoding else {
            panic!("steps")
        };
        let (Step::Times { values, .. } | Step::Minus { values, .. }) = &mut steps[index] else {
            panic!("numbers")
        };
        change(values);
        let message = format.validate().expect_err("it does not fit").message;
        assert!(message.contains(expected), "{message}");
    };
    refused(
        0,
        |values| *values = interleaved(0, DType::F16, 6, 7),
        "factor: segment `blocks` holds 28 u8, expected at least 29",
    );
    refused(
        0,
        |values| *values = interleaved(0, DType::F16, 0, u64::MAX),
        "expected at least 18446744073709551615",
    );
    refused(
        0,
        |values| *values = interleaved(0, DType::F16, 3, 1),
        "factor: numbers of f16 every 1 bytes, expected at least the 2 of each",
    );
    refused(
        0,
        |values| *values = interleaved(0, DType::U8, 3, 7),
        "factor: interleaved numbers of u8, expected f32, bf16, f16",
    );
    refused(
        0,
        |values| *values = interleaved(1, DType::F16, 0, 2),
        "factor: segment `factors` holds 2 f32, expected at least 8",
    );
    refused(
        1,
        |values| {
            if let BlockValues::Product { size, .. } = values {
                *size = 0;
            }
        },
        "subtrahend: a product with groups of 0 blocks",
    );
    refused(
        1,
        |values| {
            if let BlockValues::Product { size, .. } = values {
                *size = 1;
            }
        },
        "subtrahend: segment `factors` holds 2 f32, expected at least 4",
    );
    refused(
        1,
        |values| {
            let inner = Box::new(values.clone());
            if let BlockValues::Product { factors, .. } = values {
                *factors = inner;
            }
        },
        "a product of numbers that are computed themselves",
    );
    refused(
        1,
        |values| {
            if let BlockValues::Product { values, .. } = values
                && let BlockValues::Table { not_numbers, .. } = &mut **values
            {
                not_numbers.push(7);
            }
        },
        "codes that stand for no number have 8 bits and no rows, found 6 bits",
    );
}

fn interleaved(segment: usize, dtype: DType, start: u64, bytes: u64) -> BlockValues {
    BlockValues::Interleaved {
        segment,
        dtype,
        start,
        bytes,
    }
}
