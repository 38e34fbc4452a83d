//! Formats as data, decoded by the reference and refused where their parts do not fit.

use super::*;

mod interleaved;
mod steps;
mod vectors;
mod wide_codes;

fn two_bit() -> Format {
    Format {
        quantizer: "test".into(),
        shape: [2, 3],
        segments: vec![
            SegmentSpec::new("codes", DType::U8, 2),
            SegmentSpec::new("scale", DType::F32, 2),
            SegmentSpec::new("zero", DType::BF16, 2),
        ],
        decoding: Decoding::Affine {
            codes: Codes {
                segment: 0,
                bits: 2,
                order: BitOrder::LowFirst,
            },
            blocks: BlockMap::Rows,
            scale: BlockValues::Stored { segment: 1 },
            zero: BlockValues::Stored { segment: 2 },
        },
    }
}

#[test]
fn affine_codes_follow_the_formula() {
    let format = two_bit();
    format.validate().expect("it fits");
    let scale: Vec<u8> = [0.5f32, 2.0].iter().flat_map(|x| x.to_le_bytes()).collect();
    let zero: Vec<u8> = [1.0f32, 0.0]
        .iter()
        .flat_map(|x| half::bf16::from_f32(*x).to_le_bytes())
        .collect();
    let mut out = [0.0; 6];
    let segments: [&[u8]; 3] = [&[0b11_10_01_00, 0b00_00_01_00], &scale, &zero];
    format
        .decode(&segments, 0..2, 0..3, &mut out)
        .expect("described");
    assert_eq!(out, [-0.5, 0.0, 0.5, 6.0, 0.0, 2.0]);
    let mut column = [0.0; 2];
    format
        .decode(&segments, 0..2, 2..3, &mut column)
        .expect("described");
    assert_eq!(column, [0.5, 2.0]);
}

#[test]
fn a_short_segment_is_refused_by_name() {
    let mut format = two_bit();
    format.segments[1].len = 1;
    let message = format
        .validate()
        .expect_err("one scale for two rows")
        .message;
    assert!(
        message.contains("`scale` holds 1 f32, expected at least 2"),
        "{message}"
    );
}

#[test]
fn absurd_sizes_and_tables_are_refused_before_anything_is_allocated() {
    let refused = |change: fn(&mut Format)| {
        let mut format = two_bit();
        change(&mut format);
        format.validate().expect_err("absurd").message
    };
    let message = refused(|format| format.segments[0].len = u64::MAX);
    assert!(message.contains("expected at most"), "{message}");
    let message = refused(|format| format.segments[2].len = 1 << 40);
    assert!(message.contains("expected at most"), "{message}");
    let message = refused(|format| format.shape = [u64::MAX, 2]);
    assert!(message.contains("too many"), "{message}");
    let message = refused(|format| format.segments[1].dtype = DType::I32);
    assert!(message.contains("`scale` is of i32"), "{message}");
    let message = refused(|format| {
        let spec = format.segments[0].clone();
        format.segments.extend(vec![spec; 16]);
    });
    assert!(message.contains("19 segments"), "{message}");
}

/// A weight `[4, 10]` of 3 bits in words of ten codes, groups of 20 two columns apart, scales and
/// zeros in 8 bits.
fn three_bit() -> Format {
    let grouped = |codes, groups| BlockValues::Affine {
        codes,
        groups,
        scales: 3,
        zeros: 4,
    };
    Format {
        quantizer: "test".into(),
        shape: [4, 10],
        segments: vec![
            SegmentSpec::new("codes", DType::I32, 4),
            SegmentSpec::new("scale", DType::U8, 2),
            SegmentSpec::new("zero", DType::U8, 2),
            SegmentSpec::new("group_scales", DType::F32, 2),
            SegmentSpec::new("group_zeros", DType::F32, 2),
        ],
        decoding: Decoding::Affine {
            codes: Codes {
                segment: 0,
                bits: 3,
                order: BitOrder::Split { words: 4 },
            },
            blocks: BlockMap::Strided { count: 2 },
            scale: grouped(1, BlockMap::Rows),
            zero: grouped(2, BlockMap::Strided { count: 2 }),
        },
    }
}

fn f32s(x: &[f32]) -> Vec<u8> {
    x.iter().flat_map(|x| x.to_le_bytes()).collect()
}

#[test]
fn split_codes_with_quantized_scales_follow_the_formula() {
    let format = three_bit();
    format.validate().expect("it fits");
    let codes: Vec<u8> = (0..40).map(|i| (i * 5 % 8) as u8).collect();
    let mut words = [0; 16];
    let Decoding::Affine { codes: layout, .. } = &format.decoding else {
        panic!("an affine format")
    };
    layout.pack(&codes, &mut words);
    // Scales (20 - 4) * 0.125 = 2 and (12 - 4) * 0.125 = 1; zeros (7 - 4) * 0.125 and (9 - 1) * 0.5
    // = 4.
    let segments: [&[u8]; 5] = [
        &words,
        &[20, 12],
        &[7, 9],
        &f32s(&[0.125, 0.5]),
        &f32s(&[4.0, 1.0]),
    ];
    let mut out = [0.0; 40];
    format
        .decode(&segments, 0..4, 0..10, &mut out)
        .expect("described");
    for (i, (&found, &code)) in out.iter().zip(&codes).enumerate() {
        let code = f32::from(code);
        let expected = [(code - 0.375) * 2.0, code - 4.0][i % 2];
        assert_eq!(found, expected, "element {i}");
    }
}

#[test]
fn split_words_and_grouped_scales_that_do_not_fit_are_refused_by_name() {
    let refused = |change: fn(&mut Format), expected: &str| {
        let mut format = three_bit();
        change(&mut format);
        let message = format.validate().expect_err("it does not fit").message;
        assert!(message.contains(expected), "{message}");
    };
    fn codes(format: &mut Format) -> &mut Codes {
        match &mut format.decoding {
            Decoding::Affine { codes, .. } => codes,
            _ => panic!("an affine format"),
        }
    }
    fn split(words: u64) -> BitOrder {
        BitOrder::Split { words }
    }
    refused(|format| codes(format).order = split(3), "room for 40");
    refused(|format| codes(format).order = split(0), "room for 40");
    refused(
        |format| codes(format).order = split(u64::MAX),
        "`codes` holds 4 i32",
    );
    refused(
        |format| codes(format).order = BitOrder::HighFirst,
        "codes of 3 bits",
    );
    refused(|format| codes(format).bits = 9, "codes of 9 bits");
    refused(|format| codes(format).bits = 0, "codes of 0 bits");
    refused(|format| codes(format).bits = 2, "room for 40");
    refused(
        |format| format.segments[0].dtype = DType::F32,
        "`codes` is of f32, expected i32",
    );
    refused(
        |format| format.segments[1].len = 1,
        "scale: segment `scale` holds 1 u8",
    );
    refused(
        |format| format.segments[4].len = 1,
        "zero: segment `group_zeros` holds 1 f32, expected at least 2",
    );
    refused(
        |format| format.segments[3].dtype = DType::U8,
        "`group_scales` is of u8",
    );
    refused(
        |format| match &mut format.decoding {
            Decoding::Affine {
                zero: BlockValues::Affine { groups, .. },
                ..
            } => *groups = BlockMap::Flat { size: 0 },
            _ => panic!("an affine format"),
        },
        "a block map without blocks",
    );
}

#[test]
fn device_code_is_a_text_with_the_function() {
    let sound = format!("DEVICE void {}() {{}}", DeviceCode::FUNCTION);
    DeviceCode::cuda(&sound).validate().expect("a sound text");
    let long = sound.clone() + &" ".repeat(DeviceCode::MOST_BYTES);
    let wrong = [
        (
            String::new(),
            "does not define the function `decode_elements`",
        ),
        (sound + "\0", "a zero byte"),
        (long, "expected at most 65536"),
    ];
    for (text, expected) in wrong {
        let error = DeviceCode::cuda(&text).validate().expect_err(expected);
        assert!(error.message.contains(expected), "{}", error.message);
    }
}

/// A weight `[2, 8]` of 4 bits in blocks of 4, with scales of 8 bits over one number, and zeros of
/// 4.
fn coded() -> Format {
    let codes = |segment, bits| Codes {
        segment,
        bits,
        order: BitOrder::LowFirst,
    };
    Format {
        quantizer: "test".into(),
        shape: [2, 8],
        segments: vec![
            SegmentSpec::new("codes", DType::U8, 8),
            SegmentSpec::new("scale", DType::U8, 4),
            SegmentSpec::new("zero", DType::U8, 2),
            SegmentSpec::new("number", DType::F32, 1),
        ],
        decoding: Decoding::Affine {
            codes: codes(0, 4),
            blocks: BlockMap::Flat { size: 4 },
            scale: BlockValues::Table {
                codes: codes(1, 8),
                table: (0..256u16).map(f32::from).collect(),
                not_numbers: vec![255],
                scale: Some(TableScale::Over { segment: 3 }),
            },
            zero: BlockValues::Table {
                codes: codes(2, 4),
                table: (0..16u8).map(f32::from).collect(),
                not_numbers: vec![],
                scale: None,
            },
        },
    }
}

#[test]
fn coded_scales_and_zeros_follow_the_formula() {
    let format = coded();
    format.validate().expect("it fits");
    let number = 3.0f32;
    let segments: [&[u8]; 4] = [
        &[0x10, 0x32, 0x54, 0x76, 0x98, 0xba, 0xdc, 0xfe],
        &[1, 2, 3, 200],
        &[0x21, 0xf0],
        &number.to_le_bytes(),
    ];
    let mut out = [0.0; 16];
    format
        .decode(&segments, 0..2, 0..8, &mut out)
        .expect("described");
    let (scales, zeros) = ([1.0f32, 2.0, 3.0, 200.0], [1.0f32, 2.0, 0.0, 15.0]);
    for (i, found) in out.into_iter().enumerate() {
        let expected = (i as f32 - zeros[i / 4]) * (scales[i / 4] / number);
        assert_eq!(found, expected, "element {i}");
    }
    assert_eq!(
        (format.not_numbers(1), format.not_numbers(2)),
        (&[255][..], &[][..])
    );
}

#[test]
fn tables_that_do_not_fit_are_refused_by_name() {
    let refused = |change: fn(&mut BlockValues), expected: &str| {
        let mut format = coded();
        let Decoding::Affine { scale, .. } = &mut format.decoding else {
            panic!("an affine format")
        };
        change(scale);
        let message = format.validate().expect_err("it does not fit").message;
        assert!(message.contains(expected), "{message}");
    };
    fn codes(values: &mut BlockValues) -> &mut Codes {
        match values {
            BlockValues::Table { codes, .. } => codes,
            _ => panic!("a table"),
        }
    }
    refused(
        |values| codes(values).bits = 2,
        "a table of 256 values for 2 bits",
    );
    refused(|values| codes(values).bits = 9, "codes of 9 bits");
    refused(
        |values| codes(values).order = BitOrder::Split { words: 4 },
        "which are not split",
    );
    refused(
        |values| codes(values).bits = 4,
        "a table of 256 values for 4 bits",
    );
    refused(
        |values| codes(values).segment = 2,
        "`zero` holds 2 u8, expected at least 4",
    );
    refused(
        |values| codes(values).segment = 9,
        "segment 9 does not exist",
    );
    refused(
        |values| {
            if let BlockValues::Table { table, .. } = values {
                table[3] = f32::NAN;
            }
        },
        "value 3 of its table is NaN",
    );
    refused(
        |values| {
            if let BlockValues::Table { codes, table, .. } = values {
                (codes.bits, codes.segment) = (4, 2);
                table.truncate(16);
            }
        },
        "codes that stand for no number have 8 bits and no rows, found 4",
    );
    refused(
        |values| {
            if let BlockValues::Table { scale, .. } = values {
                *scale = Some(TableScale::Times { segment: 1 });
            }
        },
        "scale: segment `scale` is of u8, expected f32",
    );
}
