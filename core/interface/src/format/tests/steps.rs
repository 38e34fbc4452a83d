//! Decodings of steps, decoded by the reference and refused where their parts do not fit.

use super::*;

fn bf16s(x: &[f32]) -> Vec<u8> {
    let numbers = x.iter().map(|&x| half::bf16::from_f32(x));
    numbers.flat_map(|x| x.to_le_bytes()).collect()
}

fn stored(segment: usize) -> BlockValues {
    BlockValues::Stored { segment }
}

/// A weight `[2, 5]`: 3 bits in a stream, a scale in groups of 2 of a row, a factor of each column,
/// one outlier in 4 elements.
fn factored() -> Format {
    let source = ValueSource::Count {
        codes: Codes {
            segment: 0,
            bits: 3,
            order: BitOrder::Stream,
        },
    };
    let steps = vec![
        Step::Times {
            blocks: BlockMap::Groups { size: 2 },
            values: stored(1),
        },
        Step::Times {
            blocks: BlockMap::Columns,
            values: stored(2),
        },
        Step::Outliers {
            size: 4,
            count: 1,
            positions: 3,
            values: 4,
        },
    ];
    Format {
        quantizer: "test".into(),
        shape: [2, 5],
        segments: vec![
            SegmentSpec::new("codes", DType::U8, 4),
            SegmentSpec::new("scale", DType::F32, 6),
            SegmentSpec::new("factor", DType::F32, 5),
            SegmentSpec::new("positions", DType::U8, 3),
            SegmentSpec::new("outliers", DType::BF16, 3),
        ],
        decoding: Decoding::Steps { source, steps },
    }
}

#[test]
fn steps_follow_each_other_and_outliers_replace() {
    let format = factored();
    format.validate().expect("it fits");
    let (ValueSource::Count { codes }, _) = format.stages().expect("described") else {
        panic!("a source of codes")
    };
    let mut packed = [0; 4];
    codes.pack(&[1, 2, 3, 4, 5, 6, 7, 1, 2, 3], &mut packed);
    // 001 010 011 100 101 110 111 001 010 011 from the lowest bit on.
    assert_eq!(packed, [0b1101_0001, 0b0101_1000, 0b0011_1111, 0b0001_1010]);
    let scales = f32s(&[1.0, 10.0, 100.0, 2.0, 20.0, 200.0]);
    let factors = f32s(&[1.0, 0.5, 1.0, 1.0, 2.0]);
    // Element 3; element 6 = (1, 1); a position outside of the block.
    let positions = [3, 2, 4];
    let outliers = bf16s(&[-7.0, 9.0, 11.0]);
    let segments: [&[u8]; 5] = [&packed, &scales, &factors, &positions, &outliers];
    let mut out = [0.0; 10];
    let decoded = format.decode(&segments, 0..2, 0..5, &mut out);
    decoded.expect("described");
    assert_eq!(
        out,
        [1.0, 1.0, 30.0, -7.0, 1000.0, 12.0, 9.0, 20.0, 40.0, 1200.0]
    );
}

/// A weight `[2, 6]` of vectors of 3: the sum of two codebooks, less a minimum of each row.
fn vectors() -> Format {
    let codes = |segment, bits| Codes {
        segment,
        bits,
        order: BitOrder::HighFirst,
    };
    let source = ValueSource::Vectors {
        codes: vec![codes(0, 2), codes(1, 1)],
        codebooks: vec![2, 3],
        len: 3,
    };
    let minimum = Step::Minus {
        blocks: BlockMap::Rows,
        values: stored(4),
    };
    Format {
        quantizer: "test".into(),
        shape: [2, 6],
        segments: vec![
            SegmentSpec::new("codes", DType::U8, 1),
            SegmentSpec::new("residual_codes", DType::U8, 1),
            SegmentSpec::new("codebook", DType::F32, 12),
            SegmentSpec::new("residuals", DType::BF16, 6),
            SegmentSpec::new("minimum", DType::F32, 2),
        ],
        decoding: Decoding::Steps {
            source,
            steps: vec![minimum],
        },
    }
}

#[test]
fn vectors_are_the_sums_of_their_codebooks() {
    let format = vectors();
    format.validate().expect("it fits");
    let codebook: Vec<f32> = (0..12).map(|i| i as f32).collect();
    let codebook = f32s(&codebook);
    let residuals = bf16s(&[0.0, 0.0, 0.0, 100.0, 200.0, 300.0]);
    let minimum = f32s(&[0.0, 1.0]);
    let segments: [&[u8]; 5] = [
        &[0b11_00_01_10],
        &[0b0110_0000],
        &codebook,
        &residuals,
        &minimum,
    ];
    let mut out = [0.0; 12];
    let decoded = format.decode(&segments, 0..2, 0..6, &mut out);
    decoded.expect("described");
    let expected = [
        9.0, 10.0, 11.0, 100.0, 201.0, 302.0, 102.0, 203.0, 304.0, 5.0, 6.0, 7.0,
    ];
    assert_eq!(out, expected);
}

#[test]
fn layouts_with_two_descriptions_have_one_among_the_stages() {
    let mut format = factored();
    format.shape = [5, 2];
    if let Decoding::Steps {
        source: ValueSource::Count { codes },
        ..
    } = &mut format.decoding
    {
        codes.bits = 2;
    }
    let (source, steps) = format.stages().expect("described");
    assert_eq!(source.codes()[0].order, BitOrder::LowFirst);
    let (_, blocks, _) = steps[0].numbers().expect("a factor");
    assert_eq!(blocks, BlockMap::Flat { size: 2 });
}

#[test]
fn a_codebook_and_an_affine_format_are_steps_too() {
    for format in [two_bit(), three_bit()] {
        let (source, steps) = format.stages().expect("described");
        let written = Format {
            decoding: Decoding::Steps { source, steps },
            ..format.clone()
        };
        written.validate().expect("it fits");
        let segments: Vec<Vec<u8>> = format
            .segments
            .iter()
            .map(|segment| (0..segment.bytes()).map(|i| (i * 37 % 64) as u8).collect())
            .collect();
        let segments: Vec<&[u8]> = segments.iter().map(Vec::as_slice).collect();
        let [rows, cols] = format.shape;
        let decoded = |format: &Format| {
            let mut out = vec![0.0f32; (rows * cols) as usize];
            let decoded = format.decode(&segments, 0..rows, 0..cols, &mut out);
            decoded.expect("described");
            out.into_iter().map(f32::to_bits).collect::<Vec<_>>()
        };
        assert_eq!(decoded(&format), decoded(&written));
    }
}

#[test]
fn a_hadamard_matrix_multiplies_whole_runs_of_a_row() {
    let mut format = factored();
    format.shape = [2, 4];
    let Decoding::Steps { steps, .. } = &mut format.decoding else {
        panic!("a format of steps")
    };
    let [scale, factor, outliers] = &steps[..] else {
        panic!("three steps")
    };
    let before = [scale.clone(), factor.clone()];
    let after = [factor.clone(), outliers.clone()];
    *steps = [&before[..], &[Step::Hadamard { size: 4 }], &after].concat();
    format.validate().expect("it fits");
    let (source, _) = format.stages().expect("described");
    let mut packed = [0; 4];
    source.codes()[0].pack(&[1, 2, 3, 4, 5, 6, 7, 1], &mut packed);
    let scales = f32s(&[1.0, 10.0, 2.0, 0.5, 0.0, 0.0]);
    let factors = f32s(&[1.0, 0.5, 1.0, 2.0, 0.0]);
    let outliers = bf16s(&[-7.0, 9.0, 0.0]);
    let segments: [&[u8]; 5] = [&packed, &scales, &factors, &[0, 3, 0], &outliers];
    let mut out = [0.0; 8];
    let decoded = format.decode(&segments, 0..2, 0..4, &mut out);
    decoded.expect("described");
    // Rows before the matrix: [1, 1, 30, 80] and [10, 6, 3.5, 1].
    let expected = [-7.0, -25.0, -108.0, 100.0, 20.5, 3.25, 11.5, 9.0];
    assert_eq!(out, expected);
    let mut part = [0.0; 2];
    let decoded = format.decode(&segments, 1..2, 1..3, &mut part);
    decoded.expect("described");
    assert_eq!(part, [3.25, 11.5]);
}

/// Expects that a changed format of steps is refused for what `expected` says.
fn refused(mut format: Format, change: fn(&mut ValueSource, &mut Vec<Step>), expected: &str) {
    let Decoding::Steps { source, steps } = &mut format.decoding else {
        panic!("a format of steps")
    };
    change(source, steps);
    let message = format.validate().expect_err("it does not fit").message;
    assert!(message.contains(expected), "{message}");
}

#[test]
fn hadamard_matrices_that_do_not_fit_their_rows_are_refused() {
    for size in [0, 1, 3, 16, 1024] {
        let mut format = factored();
        format.shape = [1, 8];
        let Decoding::Steps { steps, .. } = &mut format.decoding else {
            panic!("a format of steps")
        };
        *steps = vec![Step::Hadamard { size }];
        let message = format.validate().expect_err("it does not fit").message;
        let expected = format!("runs of {size} elements in rows of 8");
        assert!(message.contains(&expected), "{message}");
    }
}

#[test]
fn steps_and_outliers_that_do_not_fit_are_refused_by_name() {
    fn outliers(steps: &mut [Step]) -> (&mut u64, &mut u64, &mut usize, &mut usize) {
        match &mut steps[2] {
            Step::Outliers {
                size,
                count,
                positions,
                values,
            } => (size, count, positions, values),
            _ => panic!("outliers"),
        }
    }
    let refused = |change, expected| refused(factored(), change, expected);
    refused(
        |_, steps| steps.extend(vec![steps[0].clone(); 6]),
        "9 steps, expected at most 8",
    );
    refused(
        |_, steps| *outliers(steps).0 = 257,
        "blocks of 257 elements",
    );
    refused(
        |_, steps| *outliers(steps).1 = 0,
        "0 outliers in blocks of 4",
    );
    refused(
        |_, steps| *outliers(steps).1 = 2,
        "`positions` holds 3 u8, expected at least 6",
    );
    refused(
        |_, steps| *outliers(steps).2 = 1,
        "positions of outliers: segment `scale` is of f32",
    );
    refused(
        |_, steps| *outliers(steps).3 = 0,
        "values of outliers: segment `codes` is of u8",
    );
    refused(
        |_, steps| {
            steps[0] = Step::Times {
                blocks: BlockMap::Groups { size: 0 },
                values: stored(1),
            }
        },
        "a block map without blocks",
    );
    refused(
        |_, steps| {
            steps[0] = Step::Minus {
                blocks: BlockMap::Groups { size: 1 },
                values: stored(1),
            }
        },
        "subtrahend: segment `scale` holds 6 f32, expected at least 10",
    );
}

#[test]
fn vectors_that_do_not_fit_are_refused_by_name() {
    fn parts(source: &mut ValueSource) -> (&mut Vec<Codes>, &mut Vec<usize>, &mut u64) {
        match source {
            ValueSource::Vectors {
                codes,
                codebooks,
                len,
            } => (codes, codebooks, len),
            _ => panic!("vectors"),
        }
    }
    let refused = |change, expected| refused(vectors(), change, expected);
    refused(|source, _| *parts(source).2 = 1, "vectors of 1");
    refused(|source, _| *parts(source).2 = 65, "expected 2 to 64");
    refused(
        |source, _| parts(source).1.truncate(1),
        "2 codes and 1 codebooks",
    );
    refused(
        |source, _| parts(source).1[0] = 3,
        "codebook: segment `residuals` holds 6 bf16, expected at least 12",
    );
    refused(|source, _| parts(source).0[0].bits = 3, "codes of 3 bits");
}
